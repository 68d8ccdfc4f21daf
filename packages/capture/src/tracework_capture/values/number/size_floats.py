"""Floats that are computed from symbolic ints: n / 2, float(n), math.sqrt(n), 0.9 ** n.

Python computes them anew for each call, from the ints as they are then, and the graph gets them as it gets floats that change: as a
tensor of one number in double precision. What could raise for other ints, or overflow, fixes the ints; what follows from the range
of the ints is decided by it.
"""

from __future__ import annotations

import math

from tracework_primops.symbols import Condition, Expr, FloatExpr, FloatNode, Symbol, as_quotient, bounds

from ..protocol.constant import COMPARE_FUNCTIONS, ConstantValue, fold
from .float_formulas import called, computed_int, formula_of_size
from .floats import FloatValue
from .symint import SymNumber, size_value

LARGEST = 1e300  # what could be larger might overflow
LARGEST_INT, LARGEST_PRODUCT = 2.0**63, 1e100  # of ints that guards can read, and of a few of them


class SizeFloat(FloatValue):
    """A float that is a formula over symbolic ints."""

    def __init__(self, graph, formula, hint, span):
        super().__init__(None, hint, frozenset((size, graph.symbols.hint(size)) for size in sizes_in(formula)))
        self.graph = graph
        self.formula = formula
        self.span = span

    @property
    def input_formula(self):
        return formula_of_size(self.graph, python_text(self.formula), sizes_in(self.formula))

    @input_formula.setter
    def input_formula(self, formula):
        """Made when it is asked for."""

    def is_never_zero(self):
        return self.span[0] > 0 or self.span[1] < 0

    @property
    def node(self):
        symbols = sorted({s for size, _ in self.roots for s in size.free_symbols}, key=str)
        text = python_text(self.formula)
        nodes = [self.graph.size_node(symbol) for symbol in symbols]
        return self.graph.computed_input(text, nodes, function_of_text(text, symbols), self.hint)

    @node.setter
    def node(self, node):
        """Made when it is asked for."""

    def binary(self, frame, op, other, reverse=False):
        made = None if self.known else combined(frame, op.rstrip("="), self, other, reverse)
        return super().binary(frame, op, other, reverse) if made is None else made

    def compare(self, frame, op, other):
        known = None if self.known else decided(frame, op, self, other)
        return super().compare(frame, op, other) if known is None else ConstantValue(known)

    def truth(self, frame):
        known = decided(frame, "!=", self, ConstantValue(0))
        return super().truth(frame) if known is None else known

    def unary(self, frame, op):
        return self if op == "+" else made_of(frame, "neg", self) or super().unary(frame, op)

    def special(self, frame, fn, name, args):
        """abs, round, ceil, floor, trunc."""
        if not self.known and (fn in (math.floor, math.ceil, math.trunc) or fn is round and not args):
            return self.whole(frame, fn.__name__)
        made = None if self.known else function_of(frame, fn, [self, *args])
        return fold(frame, fn, [self, *args]) if made is None else made

    def whole(self, frame, how):
        """floor, ceil, trunc or round of it, an int that may stay a symbol."""
        if as_quotient(self.formula, below=how == "floor") is None:
            found = computed_int(frame, f"{WHOLE_FUNCTIONS[how]}({{}})", self)
            if found is not None:
                return found
        keep_positive(frame, self.formula)
        return size_value(frame, node_of(frame, self.formula, how))


WHOLE_FUNCTIONS = {"floor": "floor", "ceil": "ceil", "trunc": "int", "round": "round"}


def node_of(frame, formula, how):
    """The size that `how` ("floor", "ceil", "trunc", "round") rounds a formula to."""
    return getattr(FloatNode(frame.symbols, formula), how)().value


def float_of_size(frame, size):
    """float(size)"""
    return made_of(frame, "float", size)


def made_of(frame, op, *operands):
    """The SizeFloat of an operation on sizes, floats that are formulas and numbers; None where it could raise or overflow."""
    args = tuple(part_of(operand) for operand in operands)
    if any(a is None for a in args) or not any(isinstance(a, (Expr, FloatExpr)) for a in args):
        return None
    formula = FloatExpr(op, args)
    if not all(frame.symbols.has_hint(size) for size in sizes_in(formula)):
        return None
    if interval(frame, formula) is None:
        keep_positive(frame, formula)
        if interval(frame, formula) is None:
            return None
    return SizeFloat(frame.graph, formula, formula.evaluate(frame.symbols.hint), interval(frame, formula))


def part_of(value):
    """A value's part in a formula, or None."""
    if isinstance(value, SymNumber):
        return value.expr
    if isinstance(value, SizeFloat) and not value.known:
        return value.formula
    if value.is_constant() and type(value.constant()) in (int, float):
        return value.constant()
    return None


def sizes_in(formula):
    """The sizes that a formula reads."""
    found = []
    for arg in formula.args:
        found += sizes_in(arg) if isinstance(arg, FloatExpr) else [arg] if isinstance(arg, Expr) else []
    return found


def combined(frame, op, left, right, reverse=False):
    """left op right, one of them a size or a formula; None when it is no float that stays a formula."""
    if reverse:
        left, right = right, left
    if op not in OPERATORS or (op != "/" and float not in (left.python_type(), right.python_type())):
        return None
    return made_of(frame, op, left, right)


def extremum_of_floats(frame, fn, items):
    """min or max of floats, some of them formulas; None for other values."""
    if not any(isinstance(i, SizeFloat) for i in items) or not all(i.python_type() is float for i in items):
        return None
    best = items[0]
    for item in items[1:]:
        best = made_of(frame, fn.__name__, best, item)
        if best is None:
            return None
    return best


def function_of(frame, fn, args):
    """math.fn or round of sizes, floats and formulas, as a formula; None for others."""
    made = of_range(frame, fn.__name__, args)
    if made is not None or fn in (math.floor, math.ceil, math.trunc) and isinstance(args[0], (SizeFloat, SymNumber)):
        return made
    return called(frame, "float_pow" if fn is math.pow else fn.__name__, args)


def of_range(frame, name, args):
    """The same where the range of the sizes tells that Python can compute it for all of them."""
    if name not in FUNCTIONS or not any(isinstance(a, (SizeFloat, SymNumber)) for a in args):
        return None
    if name in ("round", "abs") and not isinstance(args[0], SizeFloat):
        return None
    if name == "round":
        return (
            made_of(frame, name, *args) if len(args) == 2 and args[1].is_constant() and type(args[1].constant()) is int else None
        )
    return made_of(frame, name, *args) if len(args) == 1 else None


def decided(frame, op, formula, other):
    """The truth of `formula op other`, from ranges, or as a condition on sizes; None when only the number itself tells."""
    part = part_of(other)
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


def node_of_quotient(frame, formula, how):
    """floor or ceil of a formula that is a quotient of sizes, else None."""
    return None if as_quotient(formula, below=how == "floor") is None else node_of(frame, formula, how)


# --- ranges --------------------------------------------------------------------------------------------------------------


def keep_positive(frame, formula):
    """Ints that are positive now stay so: a condition, which most formulas need."""
    for size in sizes_in(formula):
        if frame.symbols.hint(size) >= 1:
            frame.symbols.guard(Condition.compare(">=", size, 1), frame.user_location())


def interval(frame, part):
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


def corners(fn):
    """Bounds of a function that is monotone in each argument."""

    def rule(*spans):
        found = [fn(a, b) for a in spans[0] for b in spans[1]]
        return min(found), max(found)

    return rule


def quotient(above, below):
    if below[0] <= 0 <= below[1]:
        raise ZeroDivisionError
    return corners(lambda a, b: a / b)(above, below)


def power(base, exponent):
    if base[0] < 0 or base[0] == 0 and exponent[0] <= 0:
        raise ValueError("a power of this base may not be a number")
    return corners(lambda a, b: float(a) ** b)(base, exponent)


def rising(fn):
    return lambda span: (fn(span[0]), fn(span[1]))


def around_zero(span):
    return -1.0, 1.0


INTERVALS = {
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


def python_text(part):
    """The formula in Python."""
    if not isinstance(part, FloatExpr):
        return f"({part})" if isinstance(part, Expr) else f"({part!r})"
    args = [python_text(arg) for arg in part.args]
    if part.op == "neg":
        return f"(-{args[0]})"
    return f"({args[0]} {part.op} {args[1]})" if part.op in OPERATORS else f"{part.op}({', '.join(args)})"


NAMES = {name: getattr(math, name) for name in FUNCTIONS if hasattr(math, name)}
NAMES |= {"float": float, "min": min, "max": max, "abs": abs, "round": round}


def function_of_text(text, symbols):
    """The formula as a function of the symbols' values."""
    return eval(f"lambda {', '.join(map(str, symbols))}: {text}", {"__builtins__": {}, **NAMES})
