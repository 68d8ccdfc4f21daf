"""Where a condition on two positions holds, proven by bounds: over a block of one of them, as limits of a loop over the other.

Limits are texts of calls of three functions, which Words names: targets differ in no more than that.

A comparison of whole numbers that is linear in both positions holds from or up to a place that is known for each block. Conditions that are
joined keep that form as far as intervals do; of any other condition nothing is known, and it is evaluated.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import torch

from ..ir.body import LoopBody, Ref
from ..ir.index import Expr, stride

__all__ = ["Reach", "Words", "reach_of"]


@dataclasses.dataclass(frozen=True)
class Words:
    """Names of functions of the target: the larger and the smaller of two numbers, and one of two by a condition."""

    larger: str
    smaller: str
    chosen: str


@dataclasses.dataclass(frozen=True)
class Span:
    """Positions of the loop: from `low` up to `high`, which is not included; texts, None where there is no limit."""

    low: str | None = None
    high: str | None = None

    def within(self, other: Span, words: Words) -> Span:
        """What lies in both."""
        return Span(_joined(words.larger, self.low, other.low), _joined(words.smaller, self.high, other.high))

    def around(self, other: Span, words: Words) -> Span:
        """The shortest that holds both."""
        lows, highs = (self.low, other.low), (self.high, other.high)
        low = None if None in lows else _joined(words.smaller, *lows)
        return Span(low, None if None in highs else _joined(words.larger, *highs))


def _joined(function: str, a: str | None, b: str | None) -> str | None:
    if a is None or b is None or a == b:
        return b if a is None else a
    return f"{function}({a}, {b})"


@dataclasses.dataclass(frozen=True)
class Reach:
    """possible: outside of it the condition is false for the whole block; certain: inside of it it is true for the whole block, nowhere if
    None; known: whether the two say all that there is to say, but for blocks on a border."""

    possible: Span
    certain: Span | None
    known: bool = True

    def both(self, other: Reach, words: Words) -> Reach:
        """Of this and another condition."""
        certain = None if self.certain is None or other.certain is None else self.certain.within(other.certain, words)
        return Reach(self.possible.within(other.possible, words), certain, self.known and other.known)

    def either(self, other: Reach, words: Words) -> Reach:
        """Of this or another condition."""
        certain = self.certain or other.certain
        known = self.known and other.known
        if self.certain is not None and other.certain is not None:
            lows = {self.certain.low, other.certain.low}
            highs = {self.certain.high, other.certain.high}
            if lows == {None} or highs == {None}:  # they overlap
                certain = self.certain.around(other.certain, words)
            else:
                known = False
        return Reach(self.possible.around(other.possible, words), certain, known)


EVERYWHERE = Reach(Span(), Span())
NOWHERE = Reach(Span("0", "0"), None)
UNKNOWN = Reach(Span(), None, known=False)
COMPARED = {name: getattr(operator, name) for name in ("ge", "lt", "gt", "le", "eq", "ne")}
NUMBERS = {"0": 0, "0.0": 0, "False": 0, "1": 1, "1.0": 1, "True": 1}
OPPOSITE = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclasses.dataclass(frozen=True)
class Linear:
    """loop * (position in the loop) + block * (position in the block) + rest, a text."""

    loop: int
    block: int
    rest: tuple[str, ...]

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        """The sum or the difference."""
        rest = other.rest if sign == 1 else tuple(f"-({t})" for t in other.rest)
        return Linear(self.loop + sign * other.loop, self.block + sign * other.block, (*self.rest, *rest))


def reach_of(
    body: LoopBody,
    condition: Ref,
    loop: Any,
    block: Any,
    ends: tuple[str, str],
    limit: str,
    text: Callable[[Ref], str],
    words: Words,
    negated: bool = False,
) -> Reach:
    """Of a condition of a body, or of its contrary if negated.

    Args:
        loop, block: the variables of the two positions; ends: texts of the first and the last position of the block.
        limit: text of the number of positions of the loop.
        text: gives the text of a value that depends on neither position, and writes what it needs.
    """
    return _Reader(body, loop, block, ends, limit, text, words).reach(condition, negated)


class _Reader:
    def __init__(self, body: LoopBody, loop: Any, block: Any, ends: tuple[str, str], limit: str, text: Any, words: Words) -> None:
        self.body, self.loop, self.block = body, loop, block
        self.ends, self.limit, self.text, self.words = ends, limit, text, words

    def reach(self, ref: Ref, negated: bool = False) -> Reach:
        i = self.body.instructions[ref.position]
        if i.op == "constant":
            return EVERYWHERE if (str(i.args[0]) in ("True", "1")) is not negated else NOWHERE
        joins = {"logical_and": False, "bitwise_and": False, "logical_or": True, "bitwise_or": True}
        if i.op in joins and i.dtype == torch.bool:
            a, b = (self.reach(arg, negated) for arg in i.args)
            return a.either(b, self.words) if joins[i.op] is not negated else a.both(b, self.words)
        if i.op in ("logical_not", "bitwise_not") and self.dtype(i.args[0]) == torch.bool:
            return self.reach(i.args[0], not negated)
        if i.op in OPPOSITE:
            a, b = i.args
            return self.chosen(i.op, a, b, negated) or self.compared(OPPOSITE[i.op] if negated else i.op, a, b)
        if i.op == "where" and i.dtype == torch.bool and None not in (numbers := [self.number(arg) for arg in i.args[1:]]):
            first, second = map(bool, numbers)
            return self.either_number(i.args[0], first, second, negated)
        return UNKNOWN

    def chosen(self, op: str, a: Ref, b: Ref, negated: bool) -> Reach | None:
        """Of a comparison of a number that a condition chooses, as triangles of ones are compared with 0; None for others."""
        for n, side in enumerate((a, b)):
            choice = self.uncast(side)
            i = self.body.instructions[choice.position]
            numbers = [self.number(arg) for arg in (*i.args[1:], (b, a)[n])] if i.op == "where" else [None]
            if None not in numbers:
                first, second, other = numbers
                one, two = (COMPARED[op](*((x, other) if n == 0 else (other, x))) for x in (first, second))
                return self.either_number(i.args[0], one, two, negated)
        return None

    def either_number(self, condition: Ref, first: bool, second: bool, negated: bool) -> Reach:
        """Of what is `first` where a condition holds, and else `second`."""
        if first is second:
            return EVERYWHERE if first is not negated else NOWHERE
        return self.reach(condition, negated is first)

    def uncast(self, ref: Ref) -> Ref:
        while self.body.instructions[ref.position].op == "to_dtype":
            ref = self.body.instructions[ref.position].args[0]
        return ref

    def number(self, ref: Ref) -> int | None:
        """0 or 1 for a value that is that, in any dtype."""
        i = self.body.instructions[self.uncast(ref).position]
        return NUMBERS.get(str(i.args[0])) if i.op == "constant" else None

    def dtype(self, ref: Ref) -> Any:
        return self.body.instructions[ref.position].dtype

    def compared(self, op: str, a: Ref, b: Ref) -> Reach:
        if op == "eq":
            return self.ordered("ge", a, b).both(self.ordered("le", a, b), self.words)
        if op == "ne":
            return self.ordered("gt", a, b).either(self.ordered("lt", a, b), self.words)
        return self.ordered(op, a, b)

    def ordered(self, op: str, a: Ref, b: Ref) -> Reach:
        """Of a < b, a <= b, a > b or a >= b."""
        small, large = (a, b) if op in ("lt", "le") else (b, a)
        strict = op in ("lt", "gt")
        for side, inner in ((small, True), (large, False)):
            i = self.body.instructions[side.position]
            if i.op == "abs":  # |x| <= c: x <= c and -x <= c; c <= |x|: c <= x or c <= -x
                x, other = self.linear(i.args[0]), self.linear(large if inner else small)
                if x is None or other is None:
                    return UNKNOWN
                turned = Linear(0, 0, ()).plus(x, -1)
                parts = [other.plus(t, -1) if inner else t.plus(other, -1) for t in (x, turned)]
                first, second = (self.nonnegative(p, strict) for p in parts)
                return first.both(second, self.words) if inner else first.either(second, self.words)
        low, high = self.linear(small), self.linear(large)
        return UNKNOWN if low is None or high is None else self.nonnegative(high.plus(low, -1), strict)

    def nonnegative(self, of: Linear, strict: bool) -> Reach:
        """Where a linear number is 0 or more, or more than 0."""
        rest = (*of.rest, "-1") if strict else of.rest
        first, last = self.ends if of.block >= 0 else self.ends[::-1]

        def largest(end: str) -> str:
            return " + ".join([*([f"{of.block} * {end}"] if of.block else []), *rest]) or "0"

        most, least = largest(last), largest(first)
        if of.loop == 1:
            return Reach(Span(f"-({most})"), Span(f"-({least})"))
        if of.loop == -1:
            return Reach(Span(None, f"({most} + 1)"), Span(None, f"({least} + 1)"))
        if of.loop == 0:
            possible, certain = (Span(None, f"{self.words.chosen}(({text}) >= 0, {self.limit}, 0)") for text in (most, least))
            return Reach(possible, certain)
        return UNKNOWN

    def linear(self, ref: Ref) -> Linear | None:
        i = self.body.instructions[ref.position]
        if i.dtype is None or i.dtype.is_floating_point or i.dtype == torch.bool:
            return None
        if i.op == "constant":
            return Linear(0, 0, (str(int(i.args[0])),))
        if i.op == "index_expr" and i.args[0] in (self.loop, self.block):
            return Linear(1, 0, ()) if i.args[0] == self.loop else Linear(0, 1, ())
        if i.op == "index_expr" and isinstance(i.args[0], Expr) and i.args[0].free_symbols <= {self.loop, self.block}:
            loop, block = stride(i.args[0], self.loop), stride(i.args[0], self.block)
            rest = None if loop is None or block is None else i.args[0] - loop * self.loop - block * self.block
            if isinstance(rest, int) and isinstance(loop, int) and isinstance(block, int):
                return Linear(loop, block, (str(rest),))
            return None
        if not self.depends(ref):
            return Linear(0, 0, (self.text(ref),))
        if i.op in ("add", "sub"):
            a, b = (self.linear(arg) for arg in i.args)
            return None if a is None or b is None else a.plus(b, 1 if i.op == "add" else -1)
        if i.op == "neg":
            x = self.linear(i.args[0])
            return None if x is None else Linear(0, 0, ()).plus(x, -1)
        if i.op == "to_dtype":
            return self.linear(i.args[0])
        return None

    def depends(self, ref: Ref) -> bool:
        """Whether a value depends on one of the two positions."""
        found: set[Any] = {self.loop, self.block}
        of: set[int] = set()
        for n, i in enumerate(self.body.instructions[: ref.position + 1]):
            moved = any(isinstance(arg, Ref) and arg.position in of for arg in i.args)
            if moved or any(not found.isdisjoint(getattr(arg, "free_symbols", ())) for arg in i.args):
                of.add(n)
                if i.op == "indirect":
                    found.add(i.args[2])
        return ref.position in of or self.body.instructions[ref.position].op == "local"
