"""Cores of ours: what they hold, and what their calls are named. Those who choose one and those who write it know it from here."""

from __future__ import annotations

__all__ = [
    "DEPTHWISE",
    "DIGEST",
    "GEMM",
    "LEAST_DOT",
    "LEAST_ROTATED",
    "MOST_KEPT",
    "MOST_PUT_ASIDE",
    "PACKED",
    "PACKED_CALLS",
    "ROTATED_AT_ONCE",
    "most_rows",
    "power_of_two",
]

GEMM = "gemm"
"""Target of a product that a kernel of ours computes on the CPU, and the name of that kernel."""
DEPTHWISE = "depthwise_gradient"
"""The same of the gradient of a depthwise convolution's weights."""
PACKED_CALLS = ("packed_convolution(", "packed_linear(")
"""How the text of a convolution, and of a linear layer, with packed weights begins."""
PACKED = "packed_calls"
"""The global that all of these have in common."""
DIGEST = "content_digest"
"""The kernel that these tell changed weights by."""

MOST_KEPT = 1 << 16
"""Bytes that come to the end of a block which is rotated on the CPU: they lie on the stack meanwhile."""
ROTATED_AT_ONCE = 4096
"""Elements of a program that rotates on a GPU: 32 for each of 128 threads."""
MOST_PUT_ASIDE = ROTATED_AT_ONCE // 4
"""Elements; more is more than a quarter of what rotating by two copies moves."""
LEAST_ROTATED = 1 << 22
"""Bytes on a GPU; two launches take as long as a second copy of so many."""

LEAST_DOT = 16
"""Rows, columns and terms of the smallest product that tensor cores compute."""
MOST_ACCUMULATORS = 16384
"""Of one program of attention with few queries on a GPU."""
MOST_ROWS_ON_CPU = 16
"""Of such a kernel for a CPU, whose products are those of a few rows."""


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def most_rows(width: int, device: str) -> int:
    """How many rows (query heads of one key head, times queries) such a program can hold, for keys and values of this width."""
    return MOST_ACCUMULATORS // max(LEAST_DOT, power_of_two(width)) if device == "cuda" else MOST_ROWS_ON_CPU
