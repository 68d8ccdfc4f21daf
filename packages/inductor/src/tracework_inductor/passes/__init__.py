"""GRAPH_PASSES: rewrites of a graph of prims before it is lowered, in order."""

from collections.abc import Callable

from tracework_primops import PrimGraph

from .fold_products import fold_products
from .gather_numbers import gather_numbers
from .packed_convolution import pack_convolutions
from .pad_matmul import pad_matmul
from .patch_products import patch_products

GRAPH_PASSES: tuple[Callable[[PrimGraph], PrimGraph], ...] = (
    fold_products,
    patch_products,
    pad_matmul,  # after the two that make products
    pack_convolutions,
    gather_numbers,
)

__all__ = ["GRAPH_PASSES"]
