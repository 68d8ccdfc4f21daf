"""What unaligned matrices cost, and what moving them costs: the one place for what passes/pad_matmul.py and lowering/row_padding.py weigh.

Times are in femtoseconds; measured on an H200.
"""

from collections.abc import Mapping

from .autotune.cost import DEVICES

ROW_BYTES = 16
"""What the library's quick kernels load at a time."""

_MEASURED = DEVICES["H200"]
FAST: Mapping[tuple[str, int], float] = {
    ("cuda", 2): 2e9 / _MEASURED.rates["bfloat16"],
    ("cuda", 4): 2e9 / _MEASURED.rates["float32"],
}
"""(device, bytes of an element) -> time per multiplication in a product with aligned rows."""

SLOWER: Mapping[tuple[str, int], Mapping[int, float]] = {("cuda", size): more for size, more in _MEASURED.unaligned.items()}
"""(device, bytes of an element) -> {bytes of which starts or extents of rows are multiples: time more per multiplication}: so low where it was
not measured that only large or free cases are padded."""

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
