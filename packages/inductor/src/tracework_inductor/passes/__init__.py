"""GRAPH_PASSES: rewrites of a graph of prims before it is lowered, in order, and under which options."""

from collections.abc import Callable, Mapping

from tracework_primops import PrimGraph

from ..given_numbers import convert_on_gpu
from ..options import InductorOptions
from .complex_parts import complex_parts
from .fold_products import fold_products
from .fuse_attention import fuse_attention
from .gather_numbers import gather_numbers
from .join_products import join_products
from .long_attention import long_attention
from .packed_convolution import pack_convolutions
from .packed_linear import pack_linears
from .pad_matmul import pad_matmul
from .patch_products import patch_products
from .scatter_sums import add_scattered

GRAPH_PASSES: Mapping[Callable[[PrimGraph], PrimGraph], Callable[[InductorOptions], bool]] = {
    complex_parts: lambda options: True,
    fuse_attention: lambda options: True,
    long_attention: lambda options: options.numerics == "default",  # its exponentials and sums are not eager's bits
    fold_products: lambda options: True,
    patch_products: lambda options: not options.half_accumulation,  # which is about products, and not about convolutions
    join_products: lambda options: True,
    pad_matmul: lambda options: True,  # after the two that make products
    pack_convolutions: lambda options: options.packs,
    pack_linears: lambda options: options.packs,
    add_scattered: lambda options: options.numerics == "default",  # terms are added in another order
    convert_on_gpu: lambda options: True,
    gather_numbers: lambda options: True,
}

__all__ = ["GRAPH_PASSES"]
