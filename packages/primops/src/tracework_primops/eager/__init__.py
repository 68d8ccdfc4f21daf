"""EAGER: Op -> reference execution in plain torch; complete or this import fails."""

from ..op import RULES
from ..ops import OPS
from ..tables import merge_families
from . import conv, creation, indexing, matmul, memory, pointwise, reduction, rng, scan, view, window

_FAMILY_MODULES = (pointwise, reduction, view, indexing, creation, rng, matmul, conv, window, scan, memory)

EAGER = RULES["eager"]
EAGER.update(merge_families("EAGER", _FAMILY_MODULES, OPS))

__all__ = ["EAGER"]
