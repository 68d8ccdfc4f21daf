"""An axis along which results are put together, as `cat` and `stack` do, in the segments between which nothing is decided.

As one loop each element asks which of the parts it belongs to, and is chosen among what all of them would give. A segment reads its own part.
"""

import dataclasses

from ...ir.body import Axis, Instruction, LoopBody
from ...ir.bounds import COMPARISONS
from ...ir.index import Expr
from ...schedule.plan import LoopKernel
from .peeling import Deciding, undecided

MOST_SEGMENTS = 64
SHORTEST = 16
"""Steps of a vector loop that are worth one of their own."""
GROWTH = 2
"""By how much the text may grow."""
SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
CHANGES = {"lt": (0,), "ge": (0,), "le": (1,), "gt": (1,), "eq": (0, 1), "ne": (0, 1)}
"""Comparison of a place with a number -> the places, from that number on, before which its result changes."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """Steps of an axis, and the body for these; over no variable of the axis where there is one step."""

    first: int
    steps: int
    body: LoopBody


def segments(kernel: LoopKernel) -> tuple[int, list[Segment]] | None:
    """The position of an axis of a kernel without reductions, and its segments; None where no axis has any."""
    if len(kernel.passes) != 1 or len(kernel.axes) < 2 or kernel.reads & kernel.writes:
        return None
    body, last = kernel.passes[0].body, len(kernel.axes) - 1
    for position in range(last, -1, -1):
        axis = kernel.axes[position]
        bounds = _bounds(body, axis)
        if not 2 < len(bounds) <= MOST_SEGMENTS:
            continue
        pairs = list(zip(bounds, bounds[1:], strict=False))
        if position == last and min(end - first for first, end in pairs) < SHORTEST:
            continue
        found = [Segment(first, end - first, _decided(kernel, axis, first, end)) for first, end in pairs]
        written = sum(len(s.body.instructions) for s in found)
        if written <= GROWTH * len(body.instructions) and not any(undecided(s.body) for s in found):
            return position, found
    return None


def _bounds(body: LoopBody, axis: Axis) -> list[int]:
    """0, the places before which a comparison changes, and the size; empty where that is not known."""
    if not isinstance(axis.size, int):
        return []
    found = {c for i in body.instructions if i.op in COMPARISONS for c in _changes(body, i, axis) if 0 < c < axis.size}
    return [0, *sorted(found), axis.size]


def _changes(body: LoopBody, i: Instruction, axis: Axis) -> list[int]:
    for (a, b), op in ((i.args, i.op), (i.args[::-1], SWAPPED[i.op])):
        place, number = body.instructions[a.position], body.instructions[b.position]
        if place.op == "index_expr" and number.op == "constant" and isinstance(e := place.args[0], Expr):
            rest = e - axis.var
            if isinstance(rest, int):
                return [_whole(number) - rest + k for k in CHANGES[op]]
    return []


def _whole(constant: Instruction) -> int:
    value = constant.args[0]
    return int(value) if not isinstance(value, str) else 0  # zeros are kept as text


def _decided(kernel: LoopKernel, axis: Axis, first: int, end: int) -> LoopBody:
    recorder = Deciding(kernel, kernel.axes)
    recorder.ranges[axis.var] = (first, end - 1)
    return recorder.of(kernel.passes[0].body, [{axis.var: first} if end - first == 1 else {}])


__all__ = ["Segment", "segments"]
