"""META: Op -> rule from specs to result specs; complete or this import fails.

A META rule gets a prim's arguments in order with tensors as TensorSpec, and gives a TensorSpec, or a tuple of them.
"""

from ..op import RULES
from ..ops import OPS
from ..tables import merge_families
from . import conv, creation, indexing, matmul, memory, pointwise, reduction, rng, scan, view, window

_FAMILY_MODULES = (pointwise, reduction, view, indexing, creation, rng, matmul, conv, window, scan, memory)

META = RULES["meta"]
META.update(merge_families("META", _FAMILY_MODULES, OPS))

__all__ = ["META"]
