"""What unaligned matrices cost, and what moving them costs: the one place for what passes/pad_matmul.py and lowering/row_padding.py weigh.

Times are in femtoseconds; measured on an H200.
"""

from collections.abc import Mapping

ROW_BYTES = 16
"""What the library's quick kernels load at a time."""

FAST: Mapping[tuple[str, int], float] = {("cuda", 2): 2.9, ("cuda", 4): 40.0}
"""(device, bytes of an element) -> time per multiplication in a product with aligned rows."""

SLOWER: Mapping[tuple[str, int], Mapping[int, float]] = {
    ("cuda", 2): {2: 18.0, 4: 5.6, 8: 2.0},
    ("cuda", 4): {4: 2.0, 8: 1.0},
}
"""(device, bytes of an element) -> {bytes of which starts or extents of rows are multiples -> time more per multiplication}.

2 bytes: 16384x768x50257 in 13.3 ms and 16384x768x30522 in 3.26 ms, large aligned products at 2.9 fs.
8-byte rows, and elements of 4 bytes, were not measured: low guesses, so that only large or free cases are padded.
"""

SLOWER_ROWS = 1.5
"""Time more per multiplication of 2-byte elements where only the number of a transposed first matrix's columns is unaligned.

(30522, 16384) x (16384, 768) with aligned rows: 1.51 ms; with the other way round, 30528 wide, 0.93 ms (H100).
"""

COPY = 250.0
"""Per byte read or written (4 TB/s)."""
LAUNCH = 5e9
"""One more kernel."""


def alignment(extent: int, itemsize: int) -> int:
    """The largest power of two up to ROW_BYTES that divides the bytes of so many elements."""
    size = itemsize * extent
    return min(size & -size, ROW_BYTES)
