"""When a lazy value becomes a buffer: one list of reasons."""

from collections.abc import Callable

from ..options import InductorOptions
from .value import Lazy

Reason = Callable[[Lazy, int, InductorOptions], bool]


def _too_large(value: Lazy, users: int, options: InductorOptions) -> bool:
    return value.cost > options.max_body_instructions


def _costly_and_shared(value: Lazy, users: int, options: InductorOptions) -> bool:
    return users > 1 and value.cost >= options.inline_cost and bool(value.reads)


def _several_reads_and_shared(value: Lazy, users: int, options: InductorOptions) -> bool:
    return users > 1 and len(value.reads) > 1


def _many_reads(value: Lazy, users: int, options: InductorOptions) -> bool:
    return len(value.reads) > 16


REALIZE: tuple[tuple[str, Reason], ...] = (
    ("its loop body is too large", _too_large),
    ("several users would compute it again", _costly_and_shared),
    ("several users would read several buffers again", _several_reads_and_shared),
    ("it reads many buffers", _many_reads),
)
"""(reason, test). Graph outputs, operands of library calls and reductions' results are always realised."""


def reason_to_realize(value: Lazy, users: int, options: InductorOptions) -> str | None:
    """Why this value should be a buffer, or None."""
    for reason, test in REALIZE:
        if test(value, users, options):
            return reason
    return None
