"""Sums of rows that are zero but at one place: what is there, without a walk over the row.

The gradient of a loss by classes is such a row, and what follows it sums it up.
"""

from __future__ import annotations

import dataclasses

import torch

from ...ir.body import Instruction, LoopBody, Ref, axes_behind
from ...ir.handlers import drop_unused
from ...schedule.plan import LoopKernel, Pass
from .shape import products_of

__all__ = ["without_sums_of_one_place"]

_KEEP_ZERO = frozenset({"to_dtype", "round_bfloat16", "round_float16", "neg"})
"""Ops of one operand that give zero for zero."""


def without_sums_of_one_place(kernel: LoopKernel) -> LoopKernel:
    """The kernel with such sums looked up before the pass that takes them; a pass that does nothing else is left out."""
    if len(kernel.reduction_axes) != 1 or products_of(kernel):
        return kernel
    passes: list[Pass] = []
    changed = False
    for one in kernel.passes:
        sums = {n: found for n, i in enumerate(one.body.instructions) if (found := _looked_up(one.body, i)) is not None}
        if not sums:
            passes.append(one)
            continue
        changed = True
        passes += [Pass("outer", body) for body in sums.values()]
        left = drop_unused(_without(one.body, set(sums)))
        if any(i.dtype is None for i in left):
            passes.append(dataclasses.replace(one, body=dataclasses.replace(one.body, instructions=left)))
    return dataclasses.replace(kernel, passes=tuple(passes)) if changed else kernel


def _without(body: LoopBody, dropped: set[int]) -> list[Instruction]:
    """Instructions of a body, with others in the place of some that nothing refers to."""
    nothing = Instruction("constant", ("0", torch.int64), torch.int64)
    return [nothing if n in dropped else i for n, i in enumerate(body.instructions)]


def _looked_up(body: LoopBody, reduction: Instruction) -> LoopBody | None:
    """The outer pass that defines the result of a reduction, if that is the sum of a row of one place."""
    if reduction.op != "reduce" or reduction.args[1] != "sum" or any(i.op == "indirect" for i in body.instructions):
        return None
    name, _, ref = reduction.args
    (row,), chain = body.reduction_axes, []
    while (value := body.instructions[ref.position]).op in _KEEP_ZERO:
        chain.append(value)
        ref = value.args[0]
    dtype = body.instructions[reduction.args[2].position].dtype
    if value.op != "where" or dtype is None or not dtype.is_floating_point:
        return None
    condition, there, elsewhere = value.args
    zero, test = body.instructions[elsewhere.position], body.instructions[condition.position]
    if zero.op != "constant" or test.op != "eq" or zero.args[0] in ("True", "False") or float(zero.args[0]) != 0:
        return None
    for walked, place in (test.args, test.args[::-1]):
        index = body.instructions[walked.position]
        if index.op == "index_expr" and index.args[0] == row.var and row not in axes_behind(body, place):
            break
    else:
        return None
    if row in axes_behind(body, there):
        return None
    needed = sorted(body.behind(place.position) | body.behind(there.position))
    lines: list[Instruction] = []
    moved: dict[int, Ref] = {}

    def add(op: str, *args: object, dtype: torch.dtype | None) -> Ref:
        lines.append(Instruction(op, args, dtype))
        return Ref(len(lines) - 1)

    for n in needed:
        i = body.instructions[n]
        moved[n] = add(i.op, *(moved[a.position] if isinstance(a, Ref) else a for a in i.args), dtype=i.dtype)
    at, found, integer = moved[place.position], moved[there.position], body.instructions[place.position].dtype
    for i in reversed(chain):
        found = add(i.op, found, *i.args[1:], dtype=i.dtype)
    found = add("add", found, add("constant", "0.0", dtype, dtype=dtype), dtype=dtype)  # of -0.0, as a sum gives it
    first = add("constant", "0", integer, dtype=integer)
    end = add("constant" if isinstance(row.size, int) else "index_expr", row.size, integer, dtype=integer)
    inside = [add(op, at, limit, dtype=torch.bool) for op, limit in (("ge", first), ("lt", end))]
    inside_row = add("logical_and", *inside, dtype=torch.bool)
    result = add("where", inside_row, found, add("constant", "0.0", dtype, dtype=dtype), dtype=dtype)
    add("define", name, result, dtype=None)
    return LoopBody(body.axes, (), drop_unused(lines))
