"""Whole numbers of several axes become floats before they are computed, where those of each axis alone are fewer.

A GPU converts a number in the unit that computes exponentials, an eighth as many at a time as it adds: the distance of a query from
a key, made a float for each score, takes as long as the score's exponential. As the difference of two floats it takes one addition.
"""

from __future__ import annotations

from typing import Any

import torch

from .body import Instruction, LoopBody, Ref, axes_behind
from .bounds import Ranges, interval
from .handlers import drop_unused

EXACT = 2**24
"""Up to which float32 has all whole numbers."""
SAME_OF_FLOATS = frozenset({"add", "sub", "abs", "neg", "minimum", "maximum"})
"""What gives the same number of floats as of whole numbers, as long as both are exact."""


def with_early_floats(body: LoopBody, ranges: Ranges) -> LoopBody:
    """The same body; ranges: of its variables, inclusive."""
    made: list[Instruction] = []
    refs: list[Ref] = []

    def emit(op: str, args: tuple[Any, ...], dtype: torch.dtype | None) -> Ref:
        made.append(Instruction(op, args, dtype))
        return Ref(len(made) - 1)

    def as_float(ref: Ref) -> Ref:
        i = body.instructions[ref.position]
        if not _is_apart(body, ref, ranges):
            return emit("to_dtype", (refs[ref.position], torch.float32), torch.float32)
        return emit(i.op, tuple([as_float(a) for a in i.args]), torch.float32)

    for i in body.instructions:
        if i.op == "to_dtype" and i.args[1] is torch.float32 and _is_apart(body, i.args[0], ranges):
            refs.append(as_float(i.args[0]))
        else:
            refs.append(emit(i.op, tuple([refs[a.position] if isinstance(a, Ref) else a for a in i.args]), i.dtype))
    return LoopBody(body.axes, body.reduction_axes, drop_unused(made))


def _is_apart(body: LoopBody, ref: Ref, ranges: Ranges) -> bool:
    """Whether a whole number is computed of such that have fewer axes, and all are exact as floats."""
    i = body.instructions[ref.position]
    if i.op not in SAME_OF_FLOATS or i.dtype is None or i.dtype.is_floating_point:
        return False
    limits = [interval(body.instructions, of, ranges) for of in (ref, *i.args)]
    if not all(-EXACT <= least and most <= EXACT for least, most in limits):
        return False
    axes = len(axes_behind(body, ref))
    return all(len(axes_behind(body, a)) < axes or _is_apart(body, a, ranges) for a in i.args)


__all__ = ["with_early_floats"]
