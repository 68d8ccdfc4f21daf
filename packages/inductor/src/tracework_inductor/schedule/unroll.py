"""Short innermost axes that a body asks for its place on, as where tensors are stacked: the body is written out once for each place.

Elements of a row that are computed differently, such as the real and the imaginary parts of complex numbers, are side by side in one
iteration then: each operand is read once, and what is left are vectors of iterations without conditions.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..ir.body import Axis, Instruction, Ref
from ..ir.handlers import Recorder, replay
from ..ir.scalar_ops import ROUNDINGS
from .plan import Pass

LONGEST = 4
"""Axes of more places stay loops."""
MOST_INSTRUCTIONS = 160
"""Of the body that is written out."""

WITHOUT_CONDITIONS = frozenset("load constant index_expr to_dtype add sub mul neg square store".split()) | {*ROUNDINGS.values()}
"""What a body that is written out may be made of. g++ 12 makes wrong vectors, with -fno-trapping-math, of a difference and a sum that one
iteration stores side by side where a condition chooses a factor or decides whether the result is taken."""
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


def unrolled(axes: tuple[Axis, ...], inner: tuple[Axis, ...], passes: list[Pass]) -> tuple[tuple[Axis, ...], list[Pass]]:
    """A pointwise kernel's axes and passes, without its last axis where that is short and the body asks for the place on it."""
    if inner or len(axes) < 2 or len(passes) != 1:
        return axes, passes
    *outer, last = axes
    body = passes[0].body
    if not (isinstance(last.size, int) and last.size <= LONGEST and len(body.instructions) * last.size <= MOST_INSTRUCTIONS):
        return axes, passes
    if not any(i.op == "index_expr" and last.var in i.args[0].free_symbols for i in body.instructions):
        return axes, passes
    recorder = Folding(tuple(outer))
    effects: list[Instruction] = []

    def keep(into: Recorder, i: Instruction) -> bool:
        effects.append(i)
        return True

    for place in range(last.size):
        replay(body, recorder, {last.var: place}, on_effect=keep)
    for i in effects:  # after all reads: an element that is overwritten may be an operand of the next place
        recorder.emit(i.op, i.args, None)
    written_out = recorder.finish()
    if any(i.op not in WITHOUT_CONDITIONS or i.op == "load" and i.args[2] is not None for i in written_out.instructions):
        return axes, passes
    return tuple(outer), [Pass(passes[0].level, written_out)]


class Folding(Recorder):
    """Records without what is decided by known places."""

    def emit(self, op: str, args: tuple[Any, ...], dtype: torch.dtype | None) -> Ref:
        if op == "load":
            mask = self.known(args[2])
            if mask is not None:
                assert dtype is not None
                return super().emit(op, (*args[:2], None), dtype) if mask else self.constant(0, dtype)
        elif op == "where" and (chosen := self.known(args[0])) is not None:
            return args[1] if chosen else args[2]
        elif op in COMPARISONS and len(known := [k for a in args if (k := self.known(a)) is not None]) == len(args):
            return self.constant(COMPARISONS[op](*known), torch.bool)
        elif op == "logical_and":
            for one, other in (args, args[::-1]):
                if (known_one := self.known(one)) is not None:
                    return other if known_one else one
        return super().emit(op, args, dtype)

    def known(self, value: Ref | None) -> int | None:
        """The whole number or truth value that an operand is; None where it is none, or not known."""
        if value is None:
            return None
        i = self.instructions[value.position]
        if i.op != "constant" or i.dtype not in (torch.int64, torch.bool):
            return None
        return int(i.args[0]) if not isinstance(i.args[0], str) else 0  # zeros are kept as text


__all__ = ["Folding", "unrolled"]
