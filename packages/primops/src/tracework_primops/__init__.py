"""About 250 primitive ops, decompositions from ATen, fake tensors and symbolic sizes."""

from ._version import __version__
from .op import GraphBuilder, Kind, Op, PrimValue, Tag, prims
from .ops import OPS

__all__ = ["OPS", "GraphBuilder", "Kind", "Op", "PrimValue", "Tag", "__version__", "prims"]
