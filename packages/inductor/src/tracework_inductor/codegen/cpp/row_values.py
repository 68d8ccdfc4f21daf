"""What a pass over a row computes for each of its elements, though it is the same for all: it is computed ahead of the loops.

g++ does so only with what it sees through: not with a function of libm, between blocks that go past the caches, or one of whole vectors.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...ir.body import Instruction, Ref
from ...ir.handlers import drop_unused
from ...ir.scalar_ops import SCALAR_OPS
from ...schedule.plan import Pass

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["computed_ahead"]

COSTLY = 2
"""Cost of an operation from which on it is worth a variable of its own."""


def computed_ahead(k: CppKernel, p: Pass) -> Pass:
    """The pass with such values given, which are computed here."""
    instructions = p.body.instructions
    same: set[int] = set()
    for n, i in enumerate(instructions):
        if i.op in SCALAR_OPS or i.op in ("local", "constant", "to_dtype"):
            if all(a.position in same for a in i.args if isinstance(a, Ref)):
                same.add(n)
    used = {a.position for n, i in enumerate(instructions) if n not in same for a in i.args if isinstance(a, Ref)}
    ends = used & same
    needed = {n: p.body.behind(n) for n in ends}
    ends = {n for n in ends if any(_cost(instructions[m]) >= COSTLY for m in needed[n])}
    if not ends:
        return p
    base, dtypes = k.new_values(), [i.dtype for i in instructions]
    for n in sorted(set().union(*(needed[n] for n in ends))):
        k.statement(instructions[n], f"{base}{n}", dtypes, {})
    given = list(instructions)
    for n in ends:
        dtype = instructions[n].dtype
        assert dtype is not None
        k.locals[f"{base}{n}"] = (f"{base}{n}", dtype)
        given[n] = Instruction("local", (f"{base}{n}",), dtype)
    return Pass(p.level, dataclasses.replace(p.body, instructions=drop_unused(given)))


def _cost(i: Instruction) -> int:
    return SCALAR_OPS[i.op].cost if i.op in SCALAR_OPS else 0
