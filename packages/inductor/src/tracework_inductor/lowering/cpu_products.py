"""Which matrix products of a CPU graph are computed by our own kernel (codegen/cpp/gemm.py) and not by the library.

torch's library takes its quick kernels on Intel's processors. On AMD's with 256-bit vectors (EPYC 7003) it was measured to reach 67 to 80
of 101 GFLOP/s on one thread, our kernel 75 to 88: 512x8192x256 (m, n, k) takes 31.8 ms there and 24.3 here, 197x3072x768 13.3 and 11.0,
197x768x3072 11.9 and 10.9.
"""

from typing import Any

import torch
from tracework_runtime.device import cpu

from ..ir.index import same
from .layout import is_row_major, is_static

LEAST_ROWS = 16
"""With fewer, packing the second matrix costs as much as the product."""
LEAST_WORK = 1 << 20
"""Multiplications."""
DEEPEST = 16
"""Inner extent over columns of the result from which on the library was as fast: the first matrix is packed for few columns."""


def has_own_products() -> bool:
    """Whether this processor's products are faster with our kernel."""
    return cpu.vendor() == "AuthenticAMD" and cpu.vector_bytes() == 32


def own_product(spec: Any, a: Any, b: Any) -> bool:
    """Whether a @ b is for our kernel."""
    if spec.device.type != "cpu" or spec.dtype != torch.float32 or not is_static((*a.sizes, *b.sizes)):
        return False
    if len(a.sizes) != 2 or not is_row_major(spec.sizes, spec.strides) or not has_own_products():
        return False
    (m, k), n = a.sizes, b.sizes[1]
    return m >= LEAST_ROWS and n >= LEAST_ROWS and m * n * k >= LEAST_WORK and k < DEEPEST * n


def own_addend(bias: Any, spec: Any) -> bool:
    """Whether what is added is one row, or rows with their elements side by side."""
    if not hasattr(bias, "sizes") or bias.dtype != spec.dtype or not same(bias.sizes[-1] if bias.sizes else 1, spec.sizes[1]):
        return False
    return bias.ndim == 1 or bias.ndim == 2 and (same(bias.sizes[0], 1) or same(bias.sizes[0], spec.sizes[0]))
