"""When a lazy value becomes a buffer: one list of reasons."""

from collections.abc import Callable, Mapping

from ..ir.buffer import Buffer
from ..ir.index import constant_product
from ..options import InductorOptions
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
        return True
    again = _bytes_again(value, buffers)
    if value.dtype.itemsize == 2 and value.dtype.is_floating_point and again <= _UNROUNDED_READS:
        return False
    # Written once and read by all users but the first, against computed by each: arithmetic is nearly free on a GPU.
    return again * (users - 1) > users


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
