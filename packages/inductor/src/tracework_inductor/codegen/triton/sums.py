"""Scalar functions with 1 added to them, as functions of their own: 1 + erf(x) and 1 + tanh(x).

Where the function is near -1, the sum has lost its digits; written as a whole it has all of them, and costs less than the function. Only where
the sum is all that anybody wants of the function: else it would be computed twice.
"""

import dataclasses

import torch

from ...ir.body import Instruction, LoopBody, Ref
from ...ir.scalar_ops import compute_dtype
from ...schedule.plan import LoopKernel

__all__ = ["with_sums"]

SUMS = {"erf": "one_plus_erf", "tanh": "one_plus_tanh"}
"""Scalar op -> the op of TRITON_TEXT that adds 1 to it."""


def with_sums(kernel: LoopKernel) -> LoopKernel:
    """The kernel with such sums taken together."""
    passes = tuple(dataclasses.replace(p, body=_taken_together(p.body)) for p in kernel.passes)
    return dataclasses.replace(kernel, passes=passes)


def _taken_together(body: LoopBody) -> LoopBody:
    """Instructions keep their places: the function becomes the sum, and the sum hands on what it is given."""
    users: dict[int, list[int]] = {n: [] for n, i in enumerate(body.instructions) if i.op in SUMS and _is_single(i.dtype)}
    if not users:
        return body
    for n, i in enumerate(body.instructions):
        for arg in i.args:
            if isinstance(arg, Ref) and arg.position in users:
                users[arg.position].append(n)
    changed = list(body.instructions)
    for position, sums in users.items():
        if sums and all(_adds_one(body, n, position) for n in sums):
            function = body.instructions[position]
            changed[position] = function._replace(op=SUMS[function.op])
            for n in sums:
                dtype = body.instructions[n].dtype
                changed[n] = Instruction("to_dtype", (Ref(position), dtype), dtype)
    return dataclasses.replace(body, instructions=tuple(changed))


def _is_single(dtype: torch.dtype | None) -> bool:
    return dtype is not None and compute_dtype(dtype) == torch.float32


def _adds_one(body: LoopBody, place: int, function: int) -> bool:
    i = body.instructions[place]
    others = [a for a in i.args if a != Ref(function)]
    if i.op != "add" or len(others) != 1 or not isinstance(others[0], Ref):
        return False
    other = body.instructions[others[0].position]
    return other.op == "constant" and other.args[0] == 1
