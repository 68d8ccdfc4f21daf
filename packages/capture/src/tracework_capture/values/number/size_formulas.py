"""Formulas over symbolic ints that give floats: their ranges, which tell whether Python can compute them, and their text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from tracework_primops.symbols import Condition, Expr, FloatExpr, Symbol, bounds

from ..protocol.make import make
from ..protocol.value import Frame, Value

Size: TypeAlias = int | Expr
Span: TypeAlias = tuple[float, float]
"""(Lowest, highest)"""
Part: TypeAlias = Expr | FloatExpr | int | float
"""What a formula is made of."""
Rule: TypeAlias = Callable[..., Span]
LARGEST = 1e300  # what could be larger might overflow
LARGEST_INT, LARGEST_PRODUCT = 2.0**63, 1e100  # of ints that guards can read, and of a few of them


def float_of_size(frame: Frame, size: Value) -> Value | None:
    """float(size)"""
    return formula_of(frame, "float", size)


def formula_of(frame: Frame, op: str, *operands: Value) -> Value | None:
    """The SizeFloat of an operation on sizes, floats that are formulas and numbers; None where it could raise or overflow."""
    args = tuple(operand.in_formula() for operand in operands)
    if any(a is None for a in args) or not any(isinstance(a, (Expr, FloatExpr)) for a in args):
        return None
    formula = FloatExpr(op, args)
    if not all(frame.symbols.has_hint(size) for size in sizes_in(formula)):
        return None
    if interval(frame, formula) is None:
        keep_positive(frame, formula)
        if interval(frame, formula) is None:
            return None
    return make.size_float(frame.graph, formula, formula.evaluate(frame.symbols.hint), interval(frame, formula))


def sizes_in(formula: FloatExpr) -> list[Expr]:
    """The sizes that a formula reads."""
    found = []
    for arg in formula.args:
        found += sizes_in(arg) if isinstance(arg, FloatExpr) else [arg] if isinstance(arg, Expr) else []
    return found


def combined(frame: Frame, op: str, left: Value, right: Value, reverse: bool = False) -> Value | None:
    """left op right, one of them a size or a formula; None when it is no float that stays a formula."""
    if reverse:
        left, right = right, left
    if op not in OPERATORS or (op != "/" and float not in (left.python_type(), right.python_type())):
        return None
    return formula_of(frame, op, left, right)


# --- ranges --------------------------------------------------------------------------------------------------------------


def keep_positive(frame: Frame, formula: FloatExpr) -> None:
    """Ints that are positive now stay so: a condition, which most formulas need."""
    for size in sizes_in(formula):
        if frame.symbols.hint(size) >= 1:
            frame.symbols.guard(Condition.compare(">=", size, 1), frame.user_location())


def interval(frame: Frame, part: Part) -> Span | None:
    """(lowest, highest) of a size, a number or a formula; None when it might raise, overflow, or not be a number.

    Rounding never changes an order, so that what is computed from ends of ranges bounds what is computed from numbers between them.
    """
    if isinstance(part, FloatExpr):
        spans = [interval(frame, arg) for arg in part.args]
        if any(span is None for span in spans):
            return None
        try:
            low, high = INTERVALS[part.op](*spans)
        except (ArithmeticError, ValueError):
            return None
        return (low, high) if -LARGEST < low <= high < LARGEST else None
    if isinstance(part, Expr):
        low, high = bounds(part, frame.symbols.ranges)
        limit = LARGEST_INT if isinstance(part, Symbol) else LARGEST_PRODUCT
        return float(max(low, -limit)), float(min(high, limit))
    return (part, part) if abs(part) < LARGEST else None


def corners(fn: Callable[..., Any]) -> Rule:
    """Bounds of a function that is monotone in each argument."""

    def rule(*spans: Span) -> Span:
        found = [fn(a, b) for a in spans[0] for b in spans[1]]
        return min(found), max(found)

    return rule


def quotient(above: Span, below: Span) -> Span:
    if below[0] <= 0 <= below[1]:
        raise ZeroDivisionError
    return corners(lambda a, b: a / b)(above, below)


def power(base: Span, exponent: Span) -> Span:
    if base[0] < 0 or base[0] == 0 and exponent[0] <= 0:
        raise ValueError("a power of this base may not be a number")
    return corners(lambda a, b: float(a) ** b)(base, exponent)


def rising(fn: Callable[..., Any]) -> Rule:
    return lambda span: (fn(span[0]), fn(span[1]))


def around_zero(span: Span) -> Span:
    return -1.0, 1.0


INTERVALS: dict[str, Rule] = {
    "float": lambda span: span,
    "+": corners(lambda a, b: a + b),
    "-": corners(lambda a, b: a - b),
    "*": corners(lambda a, b: a * b),
    "/": quotient,
    "**": power,
    "min": corners(min),
    "max": corners(max),
    "neg": lambda span: (-span[1], -span[0]),
    "abs": lambda span: (0.0 if span[0] <= 0 <= span[1] else min(map(abs, span)), max(map(abs, span))),
    "round": lambda span, digits: (round(span[0], digits[0]), round(span[1], digits[0])),
    "sin": around_zero,
    "cos": around_zero,
    **{name: rising(getattr(math, name)) for name in ("sqrt", "log", "log2", "log10", "exp", "tanh", "atan")},
}
OPERATORS = frozenset("+-*/") | {"**"}
FUNCTIONS = INTERVALS.keys() - OPERATORS - {"float", "min", "max", "neg"}


# --- as Python computes it ---------------------------------------------------------------------------------------------------


def python_text(part: Part) -> str:
    """The formula in Python."""
    if not isinstance(part, FloatExpr):
        return f"({part})" if isinstance(part, Expr) else f"({part!r})"
    args = [python_text(arg) for arg in part.args]
    if part.op == "neg":
        return f"(-{args[0]})"
    return f"({args[0]} {part.op} {args[1]})" if part.op in OPERATORS else f"{part.op}({', '.join(args)})"
