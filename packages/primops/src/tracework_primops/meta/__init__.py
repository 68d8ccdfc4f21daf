"""META: Op -> rule from specs to result specs; complete or this import fails. ATEN_META: ATen overload -> rule on specs.

A META rule gets a prim's arguments in order with tensors as TensorSpec, and gives a TensorSpec, or a tuple of them. An
ATEN_META rule gets the arguments of an ATen call the same way and gives exactly eager's sizes, strides and dtype, or
`NotImplemented` where it does not know (the caller then asks torch).
"""

from typing import Any

from ..op import OPS, RULES
from ..tables import merge_families
from . import conv, creation, indexing, matmul, memory, pointwise, reduction, rng, scan, view, window

_FAMILY_MODULES = (pointwise, reduction, view, indexing, creation, rng, matmul, conv, window, scan, memory)

META = RULES["meta"]
META.update(merge_families("META", _FAMILY_MODULES, OPS))
ATEN_META: dict[Any, Any] = {}
for _module in _FAMILY_MODULES:
    ATEN_META.update(getattr(_module, "ATEN_META", {}))

__all__ = ["ATEN_META", "META"]
