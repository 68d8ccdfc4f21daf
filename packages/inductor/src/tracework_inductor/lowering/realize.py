"""When a lazy value becomes a buffer: one list of reasons."""

from collections.abc import Callable, Mapping, Sequence

from ..ir.buffer import Buffer
from ..ir.index import Size, constant_product
from ..options import InductorOptions
from .layout import is_static
from .value import Lazy

Buffers = Mapping[str, Buffer]
Reason = Callable[[Lazy, int, InductorOptions, Buffers], bool]

# A sum of up to this many tensors of a half type is rounded by nobody between its terms: residual streams keep the
# precision of float32 over as many blocks, for a quarter more bytes.
_UNROUNDED_READS = 4


def _too_large(value: Lazy, users: int, options: InductorOptions, buffers: Buffers) -> bool:
    return value.cost > options.max_body_instructions


def _costly_and_shared(value: Lazy, users: int, options: InductorOptions, buffers: Buffers) -> bool:
    return users > 1 and value.cost >= options.inline_cost and bool(value.reads)


def _several_reads_and_shared(value: Lazy, users: int, options: InductorOptions, buffers: Buffers) -> bool:
    if users <= 1 or len(value.reads) <= 1:
        return False
    if value.device.type == "cpu":
        return len([name for name in value.reads if not _is_small(buffers[name].layout.sizes, value.sizes)]) > 1
    again = _bytes_again(value, buffers)
    if value.dtype.itemsize == 2 and value.dtype.is_floating_point and again <= _UNROUNDED_READS:
        return False
    # Written once and read by all users but the first, against computed by each: arithmetic is nearly free on a GPU.
    return again * (users - 1) > users


def _is_small(sizes: Sequence[Size], beside: Sequence[Size]) -> bool:
    """Whether a buffer takes next to no time to be read for a value of sizes `beside`: statistics of channels or groups, say.

    Those of rows, and what all rows share, do not count: what norms of rows write is rows in cache, and lets columns be added up on the way
    (schedule/mixed_orders.py).
    """
    if not beside or not is_static((*sizes, *beside)):
        return False
    elements, rows = constant_product(sizes), constant_product(beside[:-1])
    return elements * SMALL_SHARE < constant_product(beside) and elements not in (rows, beside[-1])


def _bytes_again(value: Lazy, buffers: Buffers) -> float:
    """Bytes that computing the value moves, over bytes that reading it would move."""
    elements = constant_product(value.sizes)
    moved = 0
    for name in value.reads:
        layout = buffers[name].layout
        # Of a table that is looked up, no more than one element for each result.
        moved += min(constant_product(layout.sizes), elements) * layout.dtype.itemsize
    return moved / max(1, elements * value.dtype.itemsize)


def _many_reads(value: Lazy, users: int, options: InductorOptions, buffers: Buffers) -> bool:
    return len(value.reads) > 16


SMALL_SHARE = 16
"""Of a value's elements, one for so many is small."""
REALIZE: tuple[tuple[str, Reason], ...] = (
    ("its loop body is too large", _too_large),
    ("several users would compute it again", _costly_and_shared),
    ("several users would read several buffers again", _several_reads_and_shared),
    ("it reads many buffers", _many_reads),
)
"""(reason, test). Graph outputs, operands of library calls and reductions' results are always realised."""


def reason_to_realize(value: Lazy, users: int, options: InductorOptions, buffers: Buffers) -> str | None:
    """Why this value should be a buffer, or None."""
    for reason, test in REALIZE:
        if test(value, users, options, buffers):
            return reason
    return None


MOST_AGAIN = 1 << 18
"""Instructions, some 20 us of one core: a loop of its own costs less, and the loop that reads the result is simpler."""
LEAST_COST = 4
"""Of what is computed again: less takes no longer than to load it."""


def is_computed_again(value: Lazy, sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether loops over `sizes` on a CPU, in the order of strides, take longer for a value that they compute for each of their elements than
    for one that is computed for each of its own.

    A dim that is repeated inside of all that the value has does not count: loops compute the value before it.
    """
    if value.device.type != "cpu" or value.cost < LEAST_COST:
        return False
    own = [*[1] * (len(sizes) - value.ndim), *value.sizes]
    steps = [s for s in strides if isinstance(s, int)]
    changing = [step for size, step in zip(own, steps, strict=False) if size != 1]
    if len(steps) < len(strides) or not is_static((*own, *sizes)) or not changing:
        return False
    inner = min(changing)
    repeats = constant_product(n for n, mine, step in zip(sizes, own, steps, strict=True) if mine == 1 and step > inner)
    return value.cost * constant_product(own) * (repeats - 1) >= MOST_AGAIN
