"""Sizes that are symbols: SymNumber holds an integer expression; arithmetic stays symbolic, what needs a number specialises."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from tracework_primops.symbols import Condition, Expr, maximum, minimum

from ...atoms import NUMPY_NUMBERS
from ...errors import NotPlain
from ...graph.builder import GraphBuilder
from ...graph.inputs import lift_number
from ...graph.sizes import relation_node
from ...guards.kinds import COMPARE_FUNCTIONS
from ...sources import Source
from ..protocol.binding import attribute_of_builtin
from ..protocol.constant import BINARY_FUNCTIONS, ConstantValue, literal
from ..protocol.kinds import AbstractArray, AbstractFloat, AbstractTensor
from ..protocol.make import make
from ..protocol.operators import call_dunder
from ..protocol.value import Emitter, Frame, Value
from ..protocol.wraps import changes_in, wraps
from .float_formulas import Formula, Roots, computed_by_python, computed_int, formula_of_size
from .number import Number
from .size_formulas import Size, combined, float_of_size

MOST_DECISIONS = 100
"""So much is decided on open numbers at most: sorting a list of them, say, would be right for one order only, and takes long to prove."""
MOST_WEIGHT = 48
"""What is computed from open numbers is fixed where it is written with more symbols and numbers than this: conditions on it would take
long to prove and to check, and hold for hardly any other numbers."""
SAME_INT = frozenset("__int__ __index__ __trunc__ __floor__ __ceil__ __round__ conjugate".split())
"""Methods that give the int itself."""
SYMBOLIC_DUNDERS = frozenset("__add__ __sub__ __mul__ __eq__ __lt__ __le__ __gt__ __ge__ __ne__".split())
SIZE_OPERATORS = frozenset(("+", "-", "*", "//", "%", "**"))
"""What expressions over sizes are made with."""
OTHER_NUMBERS = (float, complex, Fraction, *NUMPY_NUMBERS)
"""What an int is compared with as a number, beside ints."""


class SymNumber(Number):
    """An int that is an expression over size symbols."""

    cls = int

    def __init__(self, expr: Expr, graph: GraphBuilder, source: Source | None = None) -> None:
        super().__init__(source)
        self.expr = expr
        self.graph = graph
        self.fixed: int | None = None

    @property
    def roots(self) -> Roots:
        """The sizes that it is computed from, with their values, as a float has them."""
        return frozenset((symbol, self.graph.symbols.hint(symbol)) for symbol in self.expr.free_symbols)

    @property
    def input_formula(self) -> Formula | None:
        return formula_of_size(self.graph, f"({self.expr})", [self.expr])

    def in_formula(self) -> Any:
        return self.expr

    def describe(self) -> str:
        return f"size {self.expr}"

    def as_graph_arg(self, frame: Frame) -> Any:
        return self.graph.size_node(self.expr)

    def reload(self, emit: Emitter) -> str:
        return emit.graph_output(self.graph.size_node(self.expr))

    def specialise(self, frame: Frame) -> Any:
        hint = frame.symbols.hint(self.expr)
        known = self.expr - hint
        parts = [symbol - frame.symbols.hint(symbol) for symbol in self.expr.free_symbols] if is_large(known) else [known]
        for part in parts:
            frame.symbols.guard(Condition("==", part), frame.user_location())
        self.fixed = hint
        return hint

    def as_plain(self) -> Any:
        if self.fixed is None:
            raise NotPlain(self)
        return self.fixed

    def truth(self, frame: Frame) -> bool:
        return compare_sizes(frame, "!=", self.expr, 0)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("real", "numerator"):
            return self
        if name == "imag":
            return ConstantValue(0)
        return attribute_of_builtin(frame, self, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not args and not kwargs:
            if name in SAME_INT:
                return self
            if name == "__abs__":
                return self.absolute(frame)
            if name == "__float__":
                return float_of_size(frame, self) or super().call_method(frame, name, args, kwargs)
        if name in SYMBOLIC_DUNDERS and len(args) == 1 and not kwargs and issubclass(args[0].python_type(), int):
            return call_dunder(frame, self, name, args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if isinstance(other, (AbstractArray, AbstractTensor)):
            return None
        op = op.rstrip("=") if op not in ("==",) else op
        if isinstance(other, AbstractFloat) and not other.known:
            return None
        made = combined(frame, op, self, other, reverse)
        if made is not None:
            return made
        made = computed_by_python(frame, f"({{}} {op} {{}})", *((other, self) if reverse else (self, other)))
        if made is not None:
            return made
        found = self.as_size(frame, op, size_of(other), reverse)
        if found is not None:
            return size_value(frame, found)
        made = computed_int(frame, f"({{}} {op} {{}})", *((other, self) if reverse else (self, other)))
        return super().binary(frame, op, other, reverse) if made is None else made

    def as_size(self, frame: Frame, op: str, size: Size | None, reverse: bool) -> Size | None:
        """self op size as an expression that conditions can be made of, else None."""
        if size is None or is_large(size) or op not in SIZE_OPERATORS:
            return None
        left, right = (size, self.expr) if reverse else (self.expr, size)
        if op in ("//", "%", "**") and (not isinstance(right, int) or right < (0 if op == "**" else 1)):
            if op == "**" or not self.divides(frame, left, right):
                return None
        found: Size = BINARY_FUNCTIONS[op](left, right)
        known_product = op in ("*", "**") and frame.symbols.has_hint(found)
        if is_large(found) or is_heavy(found) or known_product and is_large(frame.symbols.hint(found)):
            return None
        return found

    def divides(self, frame: Frame, left: Size, right: Size) -> bool:
        """Whether left is right, which is positive, times another size: what is left of a division is no more than that."""
        if isinstance(right, int) or frame.symbols.is_true(Condition.compare(">=", right, 1)) is not True:
            return False
        rest = BINARY_FUNCTIONS["%"](left, right)
        return isinstance(rest, int) and rest == 0

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if isinstance(other, AbstractTensor):
            return None
        size = size_of(other)
        if size is not None:
            return relation(frame, op, self.expr, size)
        if other.is_constant() and type(other.constant()) is float and math.isfinite(other.constant()):
            return ConstantValue(compare_with_float(frame, op, self.expr, other.constant()))
        if other.is_constant() and isinstance(other.constant(), OTHER_NUMBERS):
            return literal(frame, COMPARE_FUNCTIONS[op](self.specialise(frame), other.constant()))
        return None

    def unary(self, frame: Frame, op: str) -> Value:
        if op == "~":
            return size_value(frame, -self.expr - 1)
        return size_value(frame, -self.expr) if op == "-" else self

    def absolute(self, frame: Frame) -> Value:
        """abs(self): of an int that the program was given, which may be of either sign, an expression; else a guard says which it is."""
        sign = Condition.compare(">=", self.expr, 0)
        if frame.symbols.is_true(sign) is None and are_numbers(frame, self.expr) and not is_large(self.expr):
            return size_value(frame, maximum(self.expr, -self.expr))
        return self if compare_sizes(frame, ">=", self.expr, 0) else size_value(frame, -self.expr)


def is_large(size: Size) -> bool:
    """Whether it has a number that guards cannot compute with: they do so with int64."""
    return any(number.bit_length() > 63 for number in ((size,) if isinstance(size, int) else size.terms.values()))


def is_heavy(size: Size) -> bool:
    """Whether it takes too long to compute or prove anything with it."""
    return not isinstance(size, int) and size.weight > MOST_WEIGHT


def size_of(value: Value) -> Size | None:
    """int or Expr of a value that is a size, else None."""
    if isinstance(value, SymNumber):
        return value.expr
    if value.is_constant() and isinstance(value.constant(), int):
        return int(value.constant())
    return None


def compare_sizes(frame: Frame, op: str, left: Size, right: Size) -> bool:
    """left op right, guarded unless it is always so."""
    difference = left - right
    if isinstance(difference, int):
        return COMPARE_FUNCTIONS[op](difference, 0)
    if is_large(difference):
        return COMPARE_FUNCTIONS[op](SymNumber(difference, frame.graph).specialise(frame), 0)
    if len(frame.symbols.conditions) >= MOST_DECISIONS and any(
        frame.symbols.origins.get(symbol) in frame.inputs.numbers for symbol in difference.free_symbols
    ):
        frame.break_graph("long_loop", f"{MOST_DECISIONS} decisions on numbers that change from call to call")
    return frame.symbols.guard(Condition(op, difference), frame.user_location())


def relation(frame: Frame, op: str, left: Size, right: Size) -> Value:
    """left op right as a value: open when it depends on data, guarded otherwise."""
    condition = Condition.compare(op, left, right)
    if is_large(left - right):
        return ConstantValue(compare_sizes(frame, op, left, right))
    if frame.symbols.has_hint(condition.expr) or frame.symbols.is_true(condition) is not None:
        return ConstantValue(compare_sizes(frame, op, left, right))
    return SizeRelation(condition, frame.graph)


class SizeRelation(Number):
    """A bool that is known only when the graph runs: a condition on sizes that depend on data. torch._check may state it."""

    cls = bool

    def __init__(self, condition: Condition, graph: GraphBuilder) -> None:
        super().__init__(None)
        self.condition = condition
        self.graph = graph

    def describe(self) -> str:
        return f"truth of {self.condition}"

    def specialise(self, frame: Frame) -> bool:
        return frame.symbols.guard(self.condition, frame.user_location())

    def reload(self, emit: Emitter) -> str:
        return emit.graph_output(relation_node(self.graph, self.condition))


def compare_with_float(frame: Frame, op: str, size: Expr, number: float) -> bool:
    """size op number, which Python compares exactly."""
    below = math.floor(number)
    if below == number:
        return compare_sizes(frame, op, size, below)
    if op in ("==", "!="):
        return op == "!="
    return compare_sizes(frame, ">" if op in (">", ">=") else "<=", size, below)


@wraps(torch.SymInt)
def wrap_symint(frame: Frame, obj: torch.SymInt, source: Source) -> Value:
    return size_value(frame, obj)


@changes_in(int)
def changing_int(frame: Frame, number: int, source: Source) -> Value | None:
    """The size of an int that had another value in an earlier capture; None when it stays a constant."""
    symbol = lift_number(frame, number, source)
    if symbol is None:
        return None
    made = size_value(frame, symbol)
    made.source = source
    return made


def size_value(frame: Frame, size: Any) -> Value:
    """The value of an int, an Expr or a SymInt."""
    if not isinstance(size, int):
        size = frame.symbols.from_symint(size) if hasattr(size, "node") else size
    return ConstantValue(size) if isinstance(size, int) else SymNumber(size, frame.graph)


def are_numbers(frame: Frame, size: Any) -> bool:
    """Whether a size is computed from ints that the program was given, and no sizes of tensors."""
    return all(frame.symbols.origins.get(symbol) in frame.inputs.numbers for symbol in getattr(size, "free_symbols", ()))


def extremum_of_sizes(frame: Frame, fn: Callable[..., Any], items: list[Value]) -> Value | None:
    """min or max of sizes: decided by guards; an expression where one depends on data, or all are ints that the program was given, and none
    is a bool."""
    sizes = [s for s in map(size_of, items) if s is not None]
    if len(sizes) < len(items):
        return None
    depends = not all(frame.symbols.has_hint(s) for s in sizes) or all(are_numbers(frame, s) for s in sizes)
    if depends and all(i.python_type() is int for i in items) and not any(map(is_large, sizes)):
        return size_value(frame, (minimum if fn is min else maximum)(*sizes))
    best = 0
    for position in range(1, len(items)):
        op = "<" if fn is min else ">"
        if compare_sizes(frame, op, sizes[position], sizes[best]):
            best = position
    return items[best]


make.provide(size=size_value)
