"""Which matrix products of a CPU graph are computed by our own kernel (codegen/cpp/gemm.py) and not by the library.

torch's library takes its quick kernels on Intel's processors. On AMD's with 256-bit vectors (EPYC 7003) it was measured to reach 67 to 80
of 101 GFLOP/s on one thread, our kernel 75 to 88. On those with 512-bit ones (EPYC 9004, two threads), microseconds of the library, of the
library with a packed matrix (passes/packed_linear.py) and of our kernel, which keeps nothing, the calls included:

    m, n, k             library   packed     ours
    16, 768, 768            174      132      149
    32, 1024, 256           133      114      102
    49, 3072, 768          1804     1411     1360
    128, 256, 256            97      111       91
    128, 1024, 256          426      348      332
    197, 3072, 768         5485     4547     4415
    197, 768, 3072         5183     4563     4510
    512, 256, 256           347      347      326
    512, 256, 1024         1378     1280     1339
    512, 8192, 256        13115    10322    10186
    1576, 3072, 768       40069    34089    35770
    3136, 96, 96            312      306      283
    3072, 768, 197, turned 4991        -     4312
    8192, 256, 512, turned 11959       -    10610
"""

from typing import Any

import torch
from tracework_runtime.device import cpu

from ..ir.index import hint, same
from .layout import is_row_major, is_static

LEAST_ROWS = 16
"""With fewer, packing the second matrix costs as much as the product."""
LEAST_WORK = 1 << 20
"""Multiplications."""
DEEPEST = 16
"""Inner extent over columns of the result from which on the library was as fast: the first matrix is packed for few columns."""


def has_own_products() -> bool:
    """Whether this processor's products are faster with our kernel."""
    return cpu.vendor() == "AuthenticAMD" and cpu.vector_bytes() >= 32


def own_product(spec: Any, a: Any, b: Any, symbols: Any) -> bool:
    """Whether a @ b is for our kernel. Rows that are not a number count as many as in the example: the kernel takes any."""
    if spec.device.type != "cpu" or spec.dtype != torch.float32 or len(a.sizes) != 2 or not is_static((a.sizes[1], *b.sizes)):
        return False
    if not is_row_major(spec.sizes, spec.strides) or not has_own_products():
        return False
    (rows, k), n = a.sizes, b.sizes[1]
    if not isinstance(rows, int) and (symbols is None or not symbols.has_hint(rows)):
        return False
    m = hint(rows, symbols)
    return m >= LEAST_ROWS and n >= LEAST_ROWS and m * n * k >= LEAST_WORK and k < DEEPEST * n


def own_addend(bias: Any, spec: Any) -> bool:
    """Whether what is added is one row, or rows with their elements side by side."""
    if not hasattr(bias, "sizes") or bias.dtype != spec.dtype or not same(bias.sizes[-1] if bias.sizes else 1, spec.sizes[1]):
        return False
    return bias.ndim == 1 or bias.ndim == 2 and (same(bias.sizes[0], 1) or same(bias.sizes[0], spec.sizes[0]))
