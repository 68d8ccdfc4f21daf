"""The nodes behind torch.SymInt, SymFloat and SymBool: what C++ and torch's Python operators call on them.

IntNode holds a size; BoolNode a condition or a combination of conditions; FloatNode a small expression tree.
Whatever needs the actual value goes to the table: conditions are recorded, floats and odd operations fix the symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, Union

import torch

from .expr import COMPARE, Condition, Expr, Size, floordiv, maximum, minimum, mod
from .layout import contiguous_strides, is_contiguous

if TYPE_CHECKING:
    from .table import SymbolTable

Truth = bool | Condition | tuple[str, "Truth", "Truth"]  # with "and" or "or"
Question = Callable[[tuple[Size, ...], tuple[Size, ...]], bool]


class Node:
    """What the three kinds have in common."""

    __slots__ = ("table", "value")
    constant = None  # torch's operators look for it on nodes that stand for numbers

    def __init__(self, table: SymbolTable, value: Any) -> None:
        self.table = table
        self.value = value

    def is_int(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def nested_int_coeff(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def constant_int(self) -> int | None:
        return None

    def constant_bool(self) -> bool | None:
        return None

    def has_hint(self) -> bool:
        return True

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def clone(self) -> Self:
        return self

    def wrap_int(self, value: int) -> IntNode:
        return IntNode(self.table, value)

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(self.table, value)

    def wrap_bool(self, value: bool) -> BoolNode:
        return BoolNode(self.table, value)

    @property
    def expr(self) -> Any:  # of what kind the node says
        return self.value

    def __str__(self) -> str:
        return str(self.value)

    __repr__ = __str__

    def _graph_repr(self) -> str:
        return str(self.value)

    def _value_eq(self, other: Node) -> bool:
        return self.value == other.value

    def _value_hash(self) -> int:
        return hash(self.value)

    def str(self) -> str:
        return str(self.value)


class IntNode(Node):
    """A size."""

    __slots__ = ()
    value: Size

    def is_int(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return self.value.__class__ is not int

    def is_constant(self) -> bool:
        return self.value.__class__ is int

    def constant_int(self) -> int | None:
        return None if isinstance(self.value, Expr) else self.value

    def has_hint(self) -> bool:
        return self.table.has_hint(self.value)

    @property
    def hint(self) -> int | None:
        return self.table.hint(self.value) if self.has_hint() else None

    def require_hint(self) -> int:
        return self.table.hint(self.value)

    maybe_as_int = constant_int

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return self.table.fix(self.value)

    def int_(self) -> int:
        return self.table.fix(self.value)

    def bool_(self) -> bool:
        return self.table.guard(Condition("!=", self.value))

    def expect_size(self, file: str = "", line: int = 0) -> bool:
        return self._relation(">=", 0).expect_true(file, line)

    # arithmetic
    def _int(self, value: Size) -> IntNode:
        return IntNode(self.table, value)

    def add(self, other: IntNode) -> IntNode:
        return self._int(self.value + other.value)

    def sub(self, other: IntNode) -> IntNode:
        return self._int(self.value - other.value)

    _sub_ = sub

    def mul(self, other: IntNode) -> IntNode:
        return self._int(self.value * other.value)

    def mod(self, other: IntNode) -> IntNode:
        return self._int(mod(self.value, other.value))

    def floordiv(self, other: IntNode) -> IntNode:
        return self._int(floordiv(self.value, other.value))

    int_floordiv = floordiv

    def neg(self) -> IntNode:
        return self._int(-self.value)

    def pos(self) -> IntNode:
        return self

    def abs(self) -> IntNode:
        return self._int(maximum(self.value, -self.value))

    def trunc(self) -> IntNode:
        return self

    floor = ceil = sym_int = trunc

    def round(self, ndigits: int | None = None) -> IntNode:
        return self

    def is_integer(self) -> BoolNode:
        return BoolNode(self.table, True)

    def pow(self, other: IntNode) -> IntNode | FloatNode:
        exponent = self.table.fix(other.value)
        return self._int(self.value**exponent) if exponent >= 0 else self.sym_float().pow(FloatNode(self.table, float(exponent)))

    pow_by_natural = pow

    def lshift(self, other: IntNode) -> IntNode:
        return self._int(self.value * 2 ** self.table.fix(other.value))

    def rshift(self, other: IntNode) -> IntNode:
        return self._int(floordiv(self.value, 2 ** self.table.fix(other.value)))

    def bitwise_and(self, other: IntNode) -> IntNode:
        return self._int(self.table.fix(self.value) & self.table.fix(other.value))

    def bitwise_or(self, other: IntNode) -> IntNode:
        return self._int(self.table.fix(self.value) | self.table.fix(other.value))

    def bitwise_xor(self, other: IntNode) -> IntNode:
        return self._int(self.table.fix(self.value) ^ self.table.fix(other.value))

    def truediv(self, other: IntNode) -> FloatNode:
        return FloatNode(self.table, FloatExpr("/", (self.value, other.value)))

    int_truediv = float_truediv = truediv

    def float_pow(self, other: IntNode | FloatNode) -> FloatNode:
        return self.sym_float().pow(other.sym_float())

    def sym_float(self) -> FloatNode:
        return FloatNode(self.table, FloatExpr("float", (self.value,)))

    def sym_min(self, other: IntNode) -> IntNode:
        return self._int(minimum(self.value, other.value))

    def sym_max(self, other: IntNode) -> IntNode:
        return self._int(maximum(self.value, other.value))

    def sym_sum(self, args: Iterable[IntNode]) -> IntNode:
        total: Size = 0
        for node in args:
            total = node.value + total
        return self._int(total)

    def sym_ite(self, then: Node, other: Node) -> Node:
        raise TypeError("sym_ite needs a condition")

    # relations
    def _relation(self, op: str, other: Size) -> BoolNode:
        condition = Condition.compare(op, self.value, other)
        known = self.table.is_true(condition)
        return BoolNode(self.table, condition if known is None else known)

    def eq(self, other: IntNode) -> BoolNode:
        return self._relation("==", other.value)

    def ne(self, other: IntNode) -> BoolNode:
        return self._relation("!=", other.value)

    def lt(self, other: IntNode) -> BoolNode:
        return self._relation("<", other.value)

    def le(self, other: IntNode) -> BoolNode:
        return self._relation("<=", other.value)

    def gt(self, other: IntNode) -> BoolNode:
        return self._relation(">", other.value)

    def ge(self, other: IntNode) -> BoolNode:
        return self._relation(">=", other.value)

    # layout questions that C++ asks about all sizes at once
    def _layout(self, question: Question, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        answer = question(tuple(n.value for n in sizes), tuple(n.value for n in strides))
        return BoolNode(self.table, answer)

    def is_contiguous(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._layout(is_contiguous, sizes, strides)

    def is_channels_last_contiguous_2d(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._layout(lambda s, t: len(s) == 4 and is_contiguous(_last(s), _last(t)), sizes, strides)

    def is_channels_last_contiguous_3d(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._layout(lambda s, t: len(s) == 5 and is_contiguous(_last(s), _last(t)), sizes, strides)

    def is_channels_last_strides_2d(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._layout(lambda s, t: len(s) == 4 and t == _channels_last_strides(s), sizes, strides)

    def is_channels_last_strides_3d(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._layout(lambda s, t: len(s) == 5 and t == _channels_last_strides(s), sizes, strides)

    def is_non_overlapping_and_dense(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> BoolNode:
        return self._layout(is_dense, sizes, strides)

    def is_non_overlapping_and_dense_indicator(self, sizes: Sequence[IntNode], strides: Sequence[IntNode]) -> IntNode:
        return self._int(int(is_dense(tuple(n.value for n in sizes), tuple(n.value for n in strides))))


def _last(values: tuple[Size, ...]) -> tuple[Size, ...]:
    """Channels moved to the end."""
    return (values[0], *values[2:], values[1])


def _channels_last_strides(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    inner = contiguous_strides(_last(sizes))
    return (inner[0], inner[-1], *inner[1:-1])


def is_dense(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> bool:
    """Whether some order of the dimensions is row-major; structural, so False when unsure."""
    left = [(s, t) for s, t in zip(sizes, strides) if not (s.__class__ is int and s == 1)]
    expected: Size = 1
    while left:
        found = next((i for i, (_, stride) in enumerate(left) if stride == expected), None)
        if found is None:
            return False
        expected = left.pop(found)[0] * expected
    return True


class BoolNode(Node):
    """A bool, a Condition, or ("and" | "or", left, right) of these."""

    __slots__ = ()
    value: Truth

    def is_bool(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.value.__class__ is bool

    def constant_bool(self) -> bool | None:
        return self.value if isinstance(self.value, bool) else None

    maybe_as_bool = constant_bool

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return decide(self.table, self.value)

    def bool_(self) -> bool:
        return decide(self.table, self.value)

    def int_(self) -> int:
        return int(decide(self.table, self.value))

    def guard_size_oblivious(self, file: str = "", line: int = 0) -> bool:
        known = known_truth(self.table, self.value)
        return decide(self.table, self.value) if known is None and _decidable(self.table, self.value) else bool(known)

    def guard_or_false(self, file: str = "", line: int = 0) -> bool:
        return self._guard_or(False)

    def guard_or_true(self, file: str = "", line: int = 0) -> bool:
        return self._guard_or(True)

    def _guard_or(self, default: bool) -> bool:
        known = known_truth(self.table, self.value)
        if known is not None:
            return known
        if not _decidable(self.table, self.value) or _in_example(self.table, self.value) is default:
            return default  # the asker declares this answer right for every size, so it need not become a condition
        return decide(self.table, self.value)

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        return known_truth(self.table, self.value) is True

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        if _decidable(self.table, self.value):
            return decide(self.table, self.value)
        if isinstance(self.value, Condition):
            self.table.assume(self.value)
        return True

    def sym_and(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.table, _combine("and", self.value, other.value))

    def sym_or(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.table, _combine("or", self.value, other.value))

    and_ = bitwise_and = sym_and
    or_ = bitwise_or = sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(self.table, _negate(self.value))

    def eq(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.table, decide(self.table, self.value) == decide(self.table, other.value))

    def ne(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.table, decide(self.table, self.value) != decide(self.table, other.value))

    def sym_int(self) -> IntNode:
        return IntNode(self.table, self.int_())

    def sym_float(self) -> FloatNode:
        return FloatNode(self.table, float(self.int_()))

    def sym_ite(self, then: Node, other: Node) -> Node:
        return then if decide(self.table, self.value) else other


def _combine(op: str, a: Truth, b: Truth) -> Truth:
    for known, other in ((a, b), (b, a)):
        if isinstance(known, bool):
            return (other if known else False) if op == "and" else (True if known else other)
    return (op, a, b)


def _negate(value: Truth) -> Truth:
    if isinstance(value, bool):
        return not value
    if isinstance(value, Condition):
        return value.negate()
    op, a, b = value
    return ("or" if op == "and" else "and", _negate(a), _negate(b))


def known_truth(table: SymbolTable, value: Truth) -> bool | None:
    """The truth when it is provable."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Condition):
        return table.is_true(value)
    op, a, b = value
    left, right = known_truth(table, a), known_truth(table, b)
    short = op == "or"
    if left is short or right is short:
        return short
    return None if left is None or right is None else not short


def decide(table: SymbolTable, value: Truth) -> bool:
    """The truth in the example; what it rests on is recorded."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Condition):
        return table.guard(value)
    op, a, b = value
    known = known_truth(table, value)
    if known is not None:
        return known
    first = decide(table, a)
    return first if first is (op == "or") else decide(table, b)


def _in_example(table: SymbolTable, value: Truth) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Condition):
        return COMPARE[value.op](table.hint(value.expr), 0)
    op, a, b = value
    return (all if op == "and" else any)(_in_example(table, v) for v in (a, b))


def _decidable(table: SymbolTable, value: Truth) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, Condition):
        return table.has_hint(value.expr)
    return _decidable(table, value[1]) and _decidable(table, value[2])


FloatOperand = Union[int, float, Expr, "FloatExpr"]


class FloatExpr:
    """An operation on sizes, floats and FloatExprs; evaluated, never solved."""

    __slots__ = ("op", "args")

    def __init__(self, op: str, args: tuple[FloatOperand, ...]) -> None:
        self.op, self.args = op, args

    def evaluate(self, fixed: Callable[[Size], int], by_zero: Callable[[float], float] | None = None) -> float:
        """The value, with `fixed` giving the value of each size. Raises ZeroDivisionError for a division by 0, unless `by_zero` gives the
        quotient of what is divided."""
        parts = [
            a.evaluate(fixed, by_zero) if isinstance(a, FloatExpr) else fixed(a) if isinstance(a, Expr) else a for a in self.args
        ]
        if by_zero is not None and self.op == "/" and not parts[1]:
            return by_zero(parts[0]) * math.copysign(1.0, parts[1])
        return FLOAT_OPS[self.op](*parts)

    def __str__(self) -> str:
        return f"({f' {self.op} '.join(map(str, self.args))})" if len(self.args) == 2 else f"{self.op}({self.args[0]})"

    __repr__ = __str__


FLOAT_OPS: dict[str, Callable[..., float]] = {
    "float": float,
    "/": lambda a, b: a / b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "neg": lambda a: -a,
    "abs": abs,
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "cos": math.cos,
    "cosh": math.cosh,
    "sin": math.sin,
    "sinh": math.sinh,
    "tan": math.tan,
    "tanh": math.tanh,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "round": round,
}
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


MOST_PARTS = 1000  # denominators of factors that are looked at
NEAREST = Fraction(1, 2**54)  # a quotient that is off by less, relatively, rounds to the same whole number
WHOLE_STEPS = {"ge": ">=", "lt": "<"}


def as_quotient(value: object, below: bool) -> tuple[Size, Size] | None:
    """(a, b) with a // b the floor of this float for all sizes below 2**40; without `below`, with its ceiling; None if unknown.

    For a quotient of sizes, a size, and a size times a factor. The factor stands for a fraction p/q when it is the float next to
    it: size * p/q is whole, or at least 1/q off a whole number, so that what matters is how whole numbers are rounded.
    """
    if not isinstance(value, FloatExpr):
        return None
    if value.op == "/":
        above, divisor = value.args
        return (above, divisor) if isinstance(above, (int, Expr)) and isinstance(divisor, (int, Expr)) else None
    if value.op == "float":
        (whole,) = value.args
        return (whole, 1) if isinstance(whole, (int, Expr)) else None
    if value.op != "*":
        return None
    size, factor = value.args if isinstance(value.args[1], float) else value.args[::-1]
    if isinstance(size, FloatExpr) and size.op == "float":
        (size,) = size.args
    if not isinstance(factor, float) or not 0 < factor < MOST_PARTS or not isinstance(size, Expr):
        return None
    near = Fraction(factor).limit_denominator(MOST_PARTS)
    off = Fraction(factor) / near - 1 if near else None
    if off is None or float(near) != factor or (off < -NEAREST if below else off > NEAREST):
        return None
    return size * near.numerator, near.denominator


def nearest_even(a: Size, b: Size) -> Size:
    """round(a / b): the nearest whole number, and of two that are as near the even one."""
    halves = 2 * a + b
    nearest = floordiv(halves, 2 * b)
    if isinstance(b, int) and b % 2:
        return nearest
    rest = mod(halves, 2 * b)
    if not isinstance(b, int) or b < 0:
        rest = maximum(rest, -rest)  # it has the sign of b
    return nearest - (1 - minimum(1, rest)) * mod(nearest, 2)


def _divided_by_zero(number: float) -> float:
    return math.copysign(math.inf, number) if number else math.nan


def _float_binary(op: str) -> Callable[[FloatNode, IntNode | FloatNode], FloatNode]:
    def method(self: FloatNode, other: IntNode | FloatNode) -> FloatNode:
        if self.value.__class__ is float and other.value.__class__ in (float, int):
            return FloatNode(self.table, float(FLOAT_OPS[op](self.value, other.value)))
        return FloatNode(self.table, FloatExpr(op, (self.value, other.value)))

    return method


def _float_unary(op: str) -> Callable[[FloatNode], FloatNode]:
    return lambda self: FloatNode(self.table, FloatExpr(op, (self.value,)))


def _float_relation(name: str) -> Callable[[FloatNode, IntNode | FloatNode], BoolNode]:
    def method(self: FloatNode, other: IntNode | FloatNode) -> BoolNode:
        if name in WHOLE_STEPS and isinstance(other, IntNode):
            found = as_quotient(self.value, below=True)
            if found is not None:  # x >= 3 is floor(x) >= 3
                return IntNode(self.table, floordiv(*found))._relation(WHOLE_STEPS[name], other.value)
        right = other.guard_float() if isinstance(other, FloatNode) else other.int_()
        return BoolNode(self.table, RELATIONS[name](self.guard_float(), right))

    return method


class FloatNode(Node):
    """A float, or a FloatExpr over sizes."""

    __slots__ = ()
    value: float | FloatExpr

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.value.__class__ is float

    def maybe_as_float(self) -> float | None:
        return None if isinstance(self.value, FloatExpr) else self.value

    @property
    def hint(self) -> float:
        return float(self.value.evaluate(self.table.hint)) if isinstance(self.value, FloatExpr) else self.value

    def guard_float(self, file: str = "", line: int = 0) -> float:
        """What torch's own formulas ask for, in which numbers divide as C++ has it."""
        return float(self.value.evaluate(self.table.fix, _divided_by_zero)) if isinstance(self.value, FloatExpr) else self.value

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return int(self.guard_float())

    int_ = guard_int

    def bool_(self) -> bool:
        return bool(self.guard_float())

    def sym_float(self) -> FloatNode:
        return self

    def floor(self) -> IntNode:
        found = as_quotient(self.value, below=True)
        return IntNode(self.table, math.floor(self.guard_float()) if found is None else floordiv(*found))

    def ceil(self) -> IntNode:
        found = as_quotient(self.value, below=False)
        return IntNode(self.table, math.ceil(self.guard_float()) if found is None else -floordiv(-found[0], found[1]))

    def trunc(self) -> IntNode:
        found = as_quotient(self.value, below=True)
        if found is not None:
            if found[1] == 1:
                return IntNode(self.table, found[0])
            whole = Condition.compare(">=", found[0], 0)
            if self.table.is_true(whole) and self.table.is_true(Condition.compare(">", found[1], 0)):
                return IntNode(self.table, floordiv(*found))
        return IntNode(self.table, math.trunc(self.guard_float()))

    sym_int = trunc

    def round(self, ndigits: int | None = None) -> IntNode | FloatNode:
        if ndigits is None:
            found = as_quotient(self.value, below=True) and as_quotient(self.value, below=False)
            return IntNode(self.table, round(self.guard_float()) if found is None else nearest_even(*found))
        return FloatNode(self.table, round(self.guard_float(), ndigits))

    def is_integer(self) -> BoolNode:
        return BoolNode(self.table, self.guard_float().is_integer())

    def sym_ite(self, then: Node, other: Node) -> Node:
        return then if self.bool_() else other

    add = _float_binary("+")
    sub = _float_binary("-")
    mul = _float_binary("*")
    truediv = float_truediv = _float_binary("/")
    floordiv = _float_binary("//")
    mod = _float_binary("%")
    pow = float_pow = _float_binary("**")
    sym_min = _float_binary("min")
    sym_max = _float_binary("max")
    neg = _float_unary("neg")
    abs = _float_unary("abs")


for _name in RELATIONS:
    setattr(FloatNode, _name, _float_relation(_name))
for _name in "sqrt cos cosh sin sinh tan tanh asin acos atan log2".split():
    setattr(FloatNode, _name, _float_unary(_name))
    setattr(FloatNode, f"sym_{_name}", _float_unary(_name))
    setattr(IntNode, _name, lambda self, _name=_name: getattr(self.sym_float(), _name)())
    setattr(IntNode, f"sym_{_name}", lambda self, _name=_name: getattr(self.sym_float(), _name)())


def to_symint(table: SymbolTable, size: Expr) -> torch.SymInt:
    """A torch.SymInt over our node."""
    return torch.SymInt(IntNode(table, size))


def unwrap(value: Any) -> Size:
    """The size inside a torch.SymInt of ours. Raises TypeError for others."""
    node = getattr(value, "node", None)
    if isinstance(node, IntNode):
        return node.value
    if isinstance(value, int):
        return int(value)
    if node is not None and node.is_constant():
        return int(value)
    raise TypeError(f"{value!r} ({type(node).__name__}) is not a size of this table")
