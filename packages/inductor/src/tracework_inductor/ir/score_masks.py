"""How a body of attention hides scores: what it puts in their place, and what it reads from memory to hide them.

A body defines "changed", the score that counts, and "keep", whether it is seen at all, of the score `local("score")` and its
indices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from .body import Instruction, LoopBody, Ref, axes_behind
from .handlers import drop_unused

__all__ = [
    "ADDED", "FILLED", "HIDDEN", "HIDES", "HIDES_ADDED", "KEPT", "SHOWN", "ScoreMask", "definitions", "number_in_place",
    "read_from_memory", "value_alone",
]  # fmt: skip

HIDES = -1e4
"""A number up to which what the body puts in the place of scores is a mask."""
HIDES_ADDED = -1e30
"""The same of what it adds to scores, which are much nearer to 0: of float16 always, of other dtypes where products are numbers at
all."""
KEPT, FILLED, ADDED = "kept", "filled", "added"
HIDDEN, SHOWN = 1 << 15, 1
"""What an element of a block counts for; it has fewer than HIDDEN of them, so that the two do not meet. One beside the tensor is
both."""


@dataclasses.dataclass(frozen=True)
class ScoreMask:
    """What hides scores.

    kind: KEPT, which hides where it is false; FILLED, the same (where it is true, if negated), by `number`; ADDED, a number that
    hides where it is low, and where it is 0 leaves `shown`, the other summand.
    """

    kind: str
    value: Ref
    negated: bool = False
    number: float = -math.inf
    shown: Ref | None = None


def definitions(body: LoopBody) -> dict[str, Ref]:
    """What the body defines, by name."""
    return {i.args[0]: i.args[1] for i in body.instructions if i.op == "define"}


def number_in_place(body: LoopBody) -> ScoreMask | None:
    """What puts a low number in the place of scores, if the body ends with it and nothing else hides scores."""
    defined, instructions = definitions(body), body.instructions
    last = instructions[defined["changed"].position]
    if last.op != "where" or not _keeps_all(body):
        return None
    condition, *chosen = last.args
    for n, ref in enumerate(chosen):
        constant = instructions[ref.position]
        if constant.op == "constant" and -math.inf < float(constant.args[0]) <= HIDES:
            return ScoreMask(FILLED, condition, n == 0, float(constant.args[0]))
    return None


def read_from_memory(body: LoopBody, positions: Sequence[Any]) -> ScoreMask | None:
    """The mask whose elements are read at these positions (a query's and a key's), so that nothing is known of it before; None
    where no check of an index, and no condition on what is read, stands in the way of reading it elsewhere."""
    found = _mask(body)
    if found is None:
        return None
    mask = value_alone(body, found.value)
    if any(i.op == "local" or i.op == "load" and i.args[2] is not None for i in mask.instructions) or any(
        True for _ in mask.checks()
    ):
        return None
    loads = [n for n, i in enumerate(mask.instructions) if i.op == "load"]
    places = {a.var for n in loads for a in axes_behind(mask, Ref(n))}
    return found if not places.isdisjoint(positions) else None


def value_alone(body: LoopBody, value: Ref) -> LoopBody:
    """A body that defines nothing but "value"."""
    nothing = Instruction("constant", (0, torch.int32), torch.int32)
    kept = [nothing if i.op == "define" else i for i in body.instructions]
    return dataclasses.replace(body, instructions=drop_unused([*kept, Instruction("define", ("value", value), None)]))


def _mask(body: LoopBody) -> ScoreMask | None:
    defined = definitions(body)
    if not _keeps_all(body):
        return ScoreMask(KEPT, defined["keep"])
    if (filled := number_in_place(body)) is not None:
        return filled
    last = body.instructions[defined["changed"].position]
    if last.op != "add":
        return None
    of_score = [_depends_on_score(body, ref) for ref in last.args]
    if of_score == [True, False]:
        return ScoreMask(ADDED, last.args[1], number=HIDES_ADDED, shown=last.args[0])
    return None


def _keeps_all(body: LoopBody) -> bool:
    keep = body.instructions[definitions(body)["keep"].position]
    return keep.op == "constant" and str(keep.args[0]) in ("True", "1")


def _depends_on_score(body: LoopBody, ref: Ref) -> bool:
    return any(body.instructions[n].op == "local" for n in body.behind(ref.position))
