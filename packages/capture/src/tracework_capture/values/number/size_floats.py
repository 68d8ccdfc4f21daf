"""Floats that are computed from symbolic ints: n / 2, float(n), math.sqrt(n), 0.9 ** n.

Python computes them anew for each call, from the ints as they are then, and the graph gets them as it gets floats that change: as a
tensor of one number in double precision. What could raise for other ints, or overflow, fixes the ints; what follows from the range
of the ints is decided by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import fx
from tracework_primops.symbols import Condition, FloatExpr, FloatNode, as_quotient

from ...graph.builder import GraphBuilder
from ...guards.kinds import COMPARE_FUNCTIONS
from ..protocol.constant import ConstantValue
from ..protocol.make import make
from ..protocol.value import Frame, Value
from .float_formulas import Formula, called, computed_int, formula_of_size
from .floats import FloatValue
from .number import Number
from .size_formulas import FUNCTIONS, Span, combined, formula_of, interval, keep_positive, python_text, sizes_in
from .symint import SymNumber, size_value


class SizeFloat(FloatValue):
    """A float that is a formula over symbolic ints."""

    def __init__(self, graph: GraphBuilder, formula: FloatExpr, hint: float, span: Span) -> None:
        Number.__init__(self)
        self.hint, self.known, self.graph = hint, False, graph
        self.roots = frozenset((size, graph.symbols.hint(size)) for size in sizes_in(formula))
        self.formula = formula
        self.span = span
        self.never_zero = span[0] > 0 or span[1] < 0

    @property
    def input_formula(self) -> Formula | None:  # type: ignore[override]
        return formula_of_size(self.graph, python_text(self.formula), sizes_in(self.formula))

    def in_formula(self) -> Any:
        return self.constant() if self.known else self.formula

    @property
    def node(self) -> fx.Node:  # type: ignore[override]
        symbols = sorted({s for size, _ in self.roots for s in size.free_symbols}, key=str)
        text = python_text(self.formula)
        nodes = [self.graph.size_node(symbol) for symbol in symbols]
        return self.graph.computed_input(text, nodes, ", ".join(map(str, symbols)), self.hint)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        made = None if self.known else combined(frame, op.rstrip("="), self, other, reverse)
        return super().binary(frame, op, other, reverse) if made is None else made

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        known = None if self.known else decided(frame, op, self, other)
        return super().compare(frame, op, other) if known is None else ConstantValue(known)

    def truth(self, frame: Frame) -> bool:
        known = decided(frame, "!=", self, ConstantValue(0))
        return super().truth(frame) if known is None else known

    def unary(self, frame: Frame, op: str) -> Value:
        return self if op == "+" else formula_of(frame, "neg", self) or super().unary(frame, op)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not self.known and not kwargs:
            if name in WHOLE_METHODS and not args:
                return self.whole(frame, WHOLE_METHODS[name])
            made = of_range(frame, name.strip("_"), [self, *args])
            if made is not None:
                return made
        return super().call_method(frame, name, args, kwargs)

    def whole(self, frame: Frame, how: str) -> Value:
        """floor, ceil, trunc or round of it, an int that may stay a symbol."""
        if as_quotient(self.formula, below=how == "floor") is None:
            found = computed_int(frame, f"{WHOLE_FUNCTIONS[how]}({{}})", self)
            if found is not None:
                return found
        keep_positive(frame, self.formula)
        return size_value(frame, node_of(frame, self.formula, how))


WHOLE_METHODS = {"__int__": "trunc", **{f"__{name}__": name for name in ("floor", "ceil", "trunc", "round")}}
WHOLE_FUNCTIONS = {"floor": "floor", "ceil": "ceil", "trunc": "int", "round": "round"}


def node_of(frame: Frame, formula: FloatExpr, how: str) -> Any:
    """The size that `how` ("floor", "ceil", "trunc", "round") rounds a formula to."""
    return getattr(FloatNode(frame.symbols, formula), how)().value


def fixed_size(frame: Frame, value: Value) -> Value:
    """A number that is no formula over sizes: those may be rewritten, which rounding does not survive."""
    return value.as_known(frame) if isinstance(value, (SymNumber, SizeFloat)) else value


def extremum_of_floats(frame: Frame, fn: Callable[..., Any], items: list[Value]) -> Value | None:
    """min or max of floats, some of them formulas; None for other values."""
    if not any(isinstance(i, SizeFloat) for i in items) or not all(i.python_type() is float for i in items):
        return None
    best = items[0]
    for item in items[1:]:
        made = formula_of(frame, fn.__name__, best, item)
        if made is None:
            return None
        best = made
    return best


def function_of(frame: Frame, fn: Callable[..., Any], args: list[Value]) -> Value | None:
    """math.fn or round of sizes, floats and formulas, as a formula; None for others."""
    made = of_range(frame, fn.__name__, args)
    if made is not None or fn in (math.floor, math.ceil, math.trunc) and isinstance(args[0], (SizeFloat, SymNumber)):
        return made
    return called(frame, "float_pow" if fn is math.pow else fn.__name__, args)


def of_range(frame: Frame, name: str, args: list[Value]) -> Value | None:
    """The same where the range of the sizes tells that Python can compute it for all of them."""
    if name not in FUNCTIONS or not any(isinstance(a, (SizeFloat, SymNumber)) for a in args):
        return None
    if name in ("round", "abs") and not isinstance(args[0], SizeFloat):
        return None
    if name == "round":
        return (
            formula_of(frame, name, *args)
            if len(args) == 2 and args[1].is_constant() and type(args[1].constant()) is int
            else None
        )
    return formula_of(frame, name, *args) if len(args) == 1 else None


def decided(frame: Frame, op: str, formula: SizeFloat, other: Value) -> bool | None:
    """The truth of `formula op other`, from ranges, or as a condition on sizes; None when only the number itself tells."""
    part = other.in_formula()
    span, against = interval(frame, formula.formula), None if part is None else interval(frame, part)
    if span is None or against is None:
        return None
    if span[0] > against[1] or span[1] < against[0]:
        return COMPARE_FUNCTIONS[op](span[0], against[0])
    if span[0] >= against[1] and op in (">=", "<"):
        return op == ">="
    if span[1] <= against[0] and op in ("<=", ">"):
        return op == "<="
    if type(part) not in (int, float) or int(part) != part or op not in WHOLE:
        return None
    rounded = node_of_quotient(frame, formula.formula, WHOLE[op])
    if rounded is None:
        return None
    return frame.symbols.guard(Condition.compare(op, rounded, int(part)), frame.user_location())


WHOLE = {">=": "floor", "<": "floor", ">": "ceil", "<=": "ceil"}
"""x >= 3 is floor(x) >= 3, x > 3 is ceil(x) > 3."""


def node_of_quotient(frame: Frame, formula: FloatExpr, how: str) -> Any:
    """floor or ceil of a formula that is a quotient of sizes, else None."""
    return None if as_quotient(formula, below=how == "floor") is None else node_of(frame, formula, how)


make.provide(size_float=SizeFloat)
