"""The declarations; OPS is complete and sealed after this import."""

from ..op import OPS
from . import conv, creation, indexing, matmul, memory, pointwise, reduction, rng, scan, view, window

OPS.seal()

__all__ = ["OPS", "conv", "creation", "indexing", "matmul", "memory", "pointwise", "reduction", "rng", "scan", "view", "window"]
