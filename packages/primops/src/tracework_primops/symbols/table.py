"""SymbolTable: the symbols of one compile, what values they had, and the conditions decided while tracing.

Every decision on a size that does not follow from the ranges is answered by the hint (the value in the example)
and recorded, so that a guard can ask for it again. Unbacked symbols (u0, u1, ...) have no hint: deciding on them raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ..errors import GuardOnUnbackedError
from .expr import MIRRORED, Condition, Expr, Size, Symbol, symbol
from .ranges import simplify
from .solve import decide, facts_of, known_value, whole_multiples
from .symint import BoolNode, to_symint, unwrap

if TYPE_CHECKING:
    from ..fake.memo import Memo

T = TypeVar("T")
Limits = tuple[int | None, int | None]  # inclusive; None when unknown

log = logging.getLogger("tracework.primops.symbols")

SMALLEST_SIZE = 2  # sizes 0 and 1 behave differently (empty, broadcast), so a symbol stands for 2 and more


@dataclass(frozen=True)
class RecordedCondition:
    """A condition that held for the hints when `origin` (user's file:line, or the op) needed to know."""

    condition: Condition
    origin: str

    def __str__(self) -> str:
        return f"{self.condition}  # {self.origin}" if self.origin else str(self.condition)


class SymbolTable:
    """Allocates symbols, evaluates and records conditions. Shared by all stages of one compile.

    `origin` is the user's line being traced, set by whoever knows it; it is kept with each recorded condition.
    """

    def __init__(self) -> None:
        self.conditions: list[RecordedCondition] = []
        self.origins: dict[Symbol, Any] = {}
        self.origin: str = ""
        self._hints: dict[Symbol, int] = {}
        self._known: dict[Condition, bool] = {}
        self._ranges: dict[Symbol, Limits] = {}
        self._equal: dict[Expr, Size] = {}
        self._facts: list[Expr] = []  # known to be 0 or more
        self._count = {"s": 0, "u": 0}
        self._carriers: dict[Expr, torch.SymInt] = {}
        self.fakes: Memo | None = None  # what fakes over these symbols remember (fake/memo.py)

    # symbols ---------------------------------------------------------------------------------
    def new(
        self,
        hint: int | None,
        origin: Any = "",
        lower: int | None = None,
        upper: int | None = None,
        unbacked: bool = False,
        number: bool = False,
    ) -> Symbol:
        """A fresh symbol. Sizes with a hint of 2 or more start at 2, numbers may be any; a range is part of what guards must check."""
        letter = "u" if unbacked else "s"
        if lower is None and not (unbacked or number) and hint is not None and hint >= SMALLEST_SIZE:
            lower = SMALLEST_SIZE
        made = symbol(f"{letter}{self._count[letter]}", lower, upper)
        self._count[letter] += 1
        self.origins[made] = origin
        if hint is not None and not unbacked:
            self._hints[made] = int(hint)
        return made

    @property
    def has_symbols(self) -> bool:
        """Whether any size is one."""
        return bool(self.origins or self._hints)

    def adopt(self, known: Symbol, hint: int | None) -> None:
        """Take over a symbol made elsewhere (a parsed graph)."""
        if hint is not None:
            self._hints[known] = hint
        letter, number = known.name[:1], known.name[1:]
        if letter in self._count and number.isdigit():
            self._count[letter] = max(self._count[letter], int(number) + 1)

    def new_scalar(self, dtype: torch.dtype) -> int | torch.SymInt:
        """The unknown value of a 0-dim tensor as torch.SymInt; floats are not carried."""
        if dtype.is_floating_point:
            raise GuardOnUnbackedError(f"item() of a {dtype} tensor", self.origin)
        low, high = (0, 1) if dtype is torch.bool else (None, None)
        return self.to_symint(self.new(None, "item()", low, high, unbacked=True))

    def has_hint(self, size: Size) -> bool:
        """Whether the example's value is known."""
        return not isinstance(size, Expr) or all(s in self._hints for s in size.free_symbols)

    def hint(self, size: Size) -> int:
        """The value in the example. Raises GuardOnUnbackedError when it depends on data."""
        if not isinstance(size, Expr):
            return size
        try:
            return size.evaluate(self._hints)
        except KeyError:
            raise GuardOnUnbackedError(size, self.origin) from None

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols, in order of allocation."""
        return tuple(self.origins)

    @property
    def ranges(self) -> dict[Symbol, Limits]:
        """Symbol -> (lower, upper), with what recorded conditions added."""
        return {s: self._ranges.get(s, (s.lower, s.upper)) for s in self.origins}

    def range_conditions(self) -> list[RecordedCondition]:
        """The conditions that the symbols' own ranges stand for; guards must check these too."""
        found = []
        for s, origin in self.origins.items():
            if s.lower is not None:
                found.append(RecordedCondition(Condition.compare(">=", s, s.lower), str(origin)))
            if s.upper is not None:
                found.append(RecordedCondition(Condition.compare("<=", s, s.upper), str(origin)))
        return found

    # conditions ------------------------------------------------------------------------------
    def is_true(self, condition: Condition) -> bool | None:
        """True or False when it follows from ranges and recorded conditions; None when it does not."""
        expr = condition.expr
        if not isinstance(expr, Expr):
            return condition.evaluate({})
        known = self._known.get(condition)
        if known is None:
            known = self._prove(condition.op, expr)
            if known is not None:
                self._known[condition] = known
        return known

    def _prove(self, op: str, expr: Expr) -> bool | None:
        size = expr.substitute(self._equal) if self._equal else expr
        size = whole_multiples(simplify(size, self._ranges))
        if self._equal and isinstance(size, Expr):
            size = size.substitute(self._equal)
        return decide(op, size, self._ranges, self._facts)

    def guard(self, condition: Condition, why: str = "") -> bool:
        """Whether it holds in the example; recorded (or its negation) unless it follows from what is known."""
        known = self.is_true(condition)
        if known is not None:
            return known
        if not self.has_hint(condition.expr):
            raise GuardOnUnbackedError(condition, why or self.origin)
        holds = condition.evaluate(self._hints)
        self._learn(condition if holds else condition.negate(), why)
        return holds

    def assume(self, condition: Condition, why: str = "torch._check") -> None:
        """State that it holds: recorded, and used by later proofs. Raises when the example contradicts it."""
        known = self.is_true(condition)
        if known is False or known is None and self.has_hint(condition.expr) and not condition.evaluate(self._hints):
            raise RuntimeError(f"the condition `{condition}` does not hold ({why})")
        if known is None:
            self._learn(condition, why)

    def fix(self, size: Size, why: str = "") -> int:
        """The hint, after recording that the size is exactly that."""
        if not isinstance(size, Expr):
            return size
        value = self.hint(size)
        self.guard(Condition.compare("==", size, value), why)
        return value

    def numbers(self) -> dict[Symbol, int]:
        """The symbols that can be no other numbers than in the example, by what was recorded."""
        hints = self._hints.items() if self.conditions else ()
        return {s: hint for s, hint in hints if self.is_true(Condition.compare("==", s, hint))}

    def equals(self) -> dict[Symbol, Symbol]:
        """Symbol -> the one that is to be written for it, since a recorded condition says that they are equal."""
        return {s: value for s, value in self._equal.items() if isinstance(s, Symbol) and isinstance(value, Symbol)}

    def attempt(self, run: Callable[[], T]) -> T:
        """The result of `run`; if it raises, nothing that it decided stays recorded."""
        kept = (list(self.conditions), dict(self._known), dict(self._ranges), dict(self._equal), list(self._facts))
        try:
            return run()
        except Exception:
            self.conditions[:] = kept[0]
            self._known, self._ranges, self._equal, self._facts = kept[1:]
            if self.fakes is not None:
                self.fakes.forget()  # results that relied on those decisions
            raise

    def _learn(self, condition: Condition, why: str) -> None:
        self.conditions.append(RecordedCondition(condition, why or self.origin))
        log.debug("recorded %s (%s)", condition, why or self.origin)
        mirrored = Condition(MIRRORED[condition.op], -condition.expr)
        self._known |= {condition: True, condition.negate(): False, mirrored: True, mirrored.negate(): False}
        self._facts += facts_of(condition)
        plain = Condition(condition.op, whole_multiples(condition.expr))
        value = known_value(plain)
        if value is not None:
            self._equal[value[0]] = value[1]
        expr = condition.expr
        affine = expr.as_affine() if isinstance(expr, Expr) else None
        if affine is None:
            return
        constant, coefficients = affine
        if condition.op == "==":
            self._solve(expr, coefficients)
        if len(coefficients) == 1:
            ((s, factor),) = coefficients.items()
            self._narrow(s, factor, constant, condition.op)

    def _solve(self, expr: Size, coefficients: dict[Symbol, int]) -> None:
        """From `s1 - s0 == 0`: s1 is s0, in proofs."""
        for s in sorted(coefficients, key=lambda s: (len(s.name), s.name), reverse=True):
            if abs(coefficients[s]) == 1 and s not in self._equal:
                value = s - expr * coefficients[s]
                step: dict[Expr, Size] = {s: value}
                self._equal = {k: v.substitute(step) if isinstance(v, Expr) else v for k, v in self._equal.items()}
                self._equal[s] = value.substitute(self._equal) if isinstance(value, Expr) else value
                self._keep_range(s, self._equal[s])
                return

    def _keep_range(self, s: Symbol, value: Size) -> None:
        """s is written as `value` in proofs from now on: what is known of s becomes known of the value."""
        low, high = self._ranges.get(s, (s.lower, s.upper))
        ends = [value - low if low is not None else 0, high - value if high is not None else 0]
        facts = [*ends, *(f.substitute(self._equal) for f in self._facts)]
        self._facts = [f for f in facts if isinstance(f, Expr)]
        for end in ends:
            affine = end.as_affine() if isinstance(end, Expr) else None
            if affine is not None and len(affine[1]) == 1:
                ((symbol, factor),) = affine[1].items()
                self._narrow(symbol, factor, affine[0], ">=")

    def _narrow(self, s: Symbol, factor: int, constant: int, op: str) -> None:
        """factor * s + constant `op` 0 as a new bound."""
        low, high = self._ranges.get(s, (s.lower, s.upper))
        if factor < 0:
            factor, constant, op = -factor, -constant, MIRRORED[op]
        if op == "==" and constant % factor == 0:
            low = high = -constant // factor
        elif op in (">", ">="):
            least = -((constant - (op == ">")) // factor) if op == ">" else -(constant // factor)
            low = least if low is None else max(low, least)
        elif op in ("<", "<="):
            most = (-constant - (op == "<")) // factor
            high = most if high is None else min(high, most)
        elif op == "!=" and constant % factor == 0:
            value = -constant // factor
            low = value + 1 if low == value else low
            high = value - 1 if high == value else high
        self._ranges[s] = (low, high)

    # carriers --------------------------------------------------------------------------------
    def to_symint(self, size: Size) -> int | torch.SymInt:
        """int stays int; an expression becomes a torch.SymInt over our node."""
        if not isinstance(size, Expr):
            return size
        found = self._carriers.get(size)
        if found is None:
            found = self._carriers[size] = to_symint(self, size)
        return found

    def from_symint(self, value: Any) -> Size:
        """The inverse of to_symint; sizes and ints pass. Raises TypeError for nodes of another owner."""
        return value if value.__class__ is int or isinstance(value, Expr) else unwrap(value)

    def to_symbool(self, condition: Condition) -> bool | torch.SymBool:
        """A bool when it is known, else a torch.SymBool that is recorded when it is decided."""
        known = self.is_true(condition)
        return known if known is not None else torch.SymBool(BoolNode(self, condition))


__all__ = ["RecordedCondition", "SymbolTable"]
