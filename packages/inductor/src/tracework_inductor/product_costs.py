"""What unaligned matrices cost, and what moving them costs: the one place for what passes/pad_matmul.py and lowering/row_padding.py weigh;
and the kinds of convolutions that differ in what the library takes for them.

Times are in femtoseconds; measured on an H200.
"""

import math
from collections.abc import Mapping, Sequence

from .autotune.cost import DEVICES, FEW_CHANNELS, LIMITED_BY_BYTES, PRODUCT_OF_ROWS, Device

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


_HALF = 2
"""Bytes."""
TILES = "tiles"
"""A large product, and the core that computes it."""
LARGE_CONVOLUTION = "convolution"
"""Any other than those below."""
LEAST_CHANNELS, MOST_INNER, MOST_RESULTS = 3, 200, 320
"""FEW_CHANNELS are those whose pixels are less than ROW_BYTES: the library fills them up, in copies of the image and in what it multiplies. Like
those that were measured: of at least so many channels, in the product at most so large, and of at least LEAST_MOVING_US."""
LEAST_MOVING_US = 4.0
"""LIMITED_BY_BYTES are those of one place that take longer to write the results, and to read and write them once more for what follows, than to
compute them, and at least this: less is the latency of one block's loop, as behind a pooling of whole images."""
CONVOLUTIONS = frozenset((LARGE_CONVOLUTION, FEW_CHANNELS, LIMITED_BY_BYTES))


LEAST_EXTENT, LEAST_RESULTS = 256, 1 << 21
MOST_SCALARS = 24
"""PRODUCT_OF_ROWS, like those that were measured: of bfloat16 or float16, with known sizes of at least LEAST_EXTENT; the elements of both
matrices that are added up lie side by side, as those of a linear layer do; what follows costs at most so many additions an element. Fewer
results than LEAST_RESULTS, 128 x 128 for each multiprocessor, take the latency of one block's loop, which is predicted at half of what it is."""


def product_kind(extents: Sequence[int], unit: str, of_rows: bool) -> str:
    """Of a product with these batches, rows, columns and inner elements. of_rows: whether both matrices are read by rows of what is added up."""
    batches, *sizes = extents
    rows, columns, _ = sizes
    large = min(sizes) >= LEAST_EXTENT and rows * columns >= LEAST_RESULTS
    known = of_rows and batches == 1 and large and unit in ("bfloat16", "float16")
    return PRODUCT_OF_ROWS if known else TILES


def convolution_kind(image: Sequence[int], weight: Sequence[int], results: int, unit: str, on: Device) -> str:
    """Of a convolution with one group, by the sizes of its operands and the elements of its result, whose dtype is the word `unit`."""
    if unit == "float32":  # of which the library rounds operands, where it may
        return TILES
    moving = _HALF * (math.prod(image) + math.prod(weight) + 3 * results) / on.bandwidth
    computing = 2 * results * math.prod(weight[1:]) / on.rates[unit]
    if has_few_channels(weight, _HALF):
        inner = math.prod(weight[1:])
        known = weight[1] >= LEAST_CHANNELS and inner <= MOST_INNER and weight[0] <= MOST_RESULTS and moving >= LEAST_MOVING_US
        return FEW_CHANNELS if known else LARGE_CONVOLUTION
    limited = math.prod(weight[2:]) == 1 and computing < moving >= LEAST_MOVING_US
    return LIMITED_BY_BYTES if limited else LARGE_CONVOLUTION


def has_few_channels(weight: Sequence[int], itemsize: int) -> bool:
    """Whether a pixel is less than what is loaded at a time, and windows have several."""
    return weight[1] * itemsize < ROW_BYTES and math.prod(weight[2:]) > 1
