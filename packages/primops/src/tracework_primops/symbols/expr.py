"""Interned, immutable integer expressions in polynomial normal form.

An expression is a sum of `coefficient * product of atoms`. Atoms are symbols and the operations that a
polynomial cannot absorb: FloorDiv, Mod, Max, Min. Rules of this file:

* equal expressions are the same object, so `==` and `hash` are identity and cost nothing;
* whatever is constant is a plain `int`, so a size is `int | Expr`;
* only identities that hold for all integers (and non-zero divisors) are applied here;
  what needs a range is in ranges.py;
* `//` and `%` mean what they mean in Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Self, TypeVar, Union
from weakref import WeakValueDictionary

Size = Union[int, "Expr"]
Monomial = tuple["Atom", ...]  # sorted by text; () is the constant
Declared = tuple[str, int | None, int | None]  # name, lower and upper of a symbol
A = TypeVar("A", bound="Atom")


class Expr:
    """An integer expression that is not a constant. Make them with `symbol` and arithmetic."""

    __slots__ = ("terms", "_text", "_free", "_weight", "__weakref__")
    terms: dict[Monomial, int]
    _text: str | None
    _free: frozenset[Symbol] | None
    _weight: int | None

    # arithmetic ------------------------------------------------------------------------------
    def __add__(self, other: Size) -> Size:
        if type(other) is int:
            if other == 0:
                return self
            terms = dict(self.terms)
            terms[()] = terms.get((), 0) + other
            return _make(terms)
        if not isinstance(other, Expr):
            number = _as_size(other)
            return NotImplemented if number is None else self + number
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _make(terms)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return _make({monomial: -coefficient for monomial, coefficient in self.terms.items()})

    def __pos__(self) -> Size:
        return self

    def __sub__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else self + (-size)

    def __rsub__(self, other: Size) -> Size:
        return (-self) + other

    def __mul__(self, other: Size) -> Size:
        if type(other) is int:
            if other == 1:
                return self
            if other == 0:
                return 0
            return _make({monomial: c * other for monomial, c in self.terms.items()})
        if not isinstance(other, Expr):
            number = _as_size(other)
            return NotImplemented if number is None else self * number
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = _merge(left, right)
                terms[monomial] = terms.get(monomial, 0) + a * b
        return _make(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else floordiv(self, size)

    def __rfloordiv__(self, other: Size) -> Size:
        return floordiv(other, self)

    def __mod__(self, other: Size) -> Size:
        size = _as_size(other)
        return NotImplemented if size is None else mod(self, size)

    def __rmod__(self, other: Size) -> Size:
        return mod(other, self)

    def __pow__(self, exponent: int) -> Size:
        if type(exponent) is not int or exponent < 0:
            return NotImplemented
        result: Size = 1
        for _ in range(exponent):
            result = self * result
        return result

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of the symbolic size `{self}` is not known here; ask the SymbolTable (guard or is_true)")

    # queries ---------------------------------------------------------------------------------
    @property
    def free_symbols(self) -> frozenset[Symbol]:
        """The symbols this expression depends on."""
        if self._free is None:
            found: set[Symbol] = set()
            for atom in self.atoms():
                found |= atom._own_symbols()
            self._free = frozenset(found)
        return self._free

    @property
    def weight(self) -> int:
        """How many symbols and numbers its text has: what it takes to compute or to prove something of it grows with that, and may
        double with each operation on one that holds an operand twice."""
        if self._weight is None:
            self._weight = sum(1 + sum(atom.weight for atom in monomial) for monomial in self.terms)
        return self._weight

    def atoms(self) -> Iterable[Atom]:
        """The distinct atoms of the polynomial (not looking inside them)."""
        return dict.fromkeys(atom for monomial in self.terms for atom in monomial)

    def coefficient(self, atom: Atom) -> Size | None:
        """What `atom` is multiplied by; 0 when absent; None when it occurs other than linearly."""
        terms: dict[Monomial, int] = {}
        for monomial, value in self.terms.items():
            count = monomial.count(atom)
            if any(atom is not a and isinstance(atom, Symbol) and atom in a.free_symbols for a in monomial) or count > 1:
                return None
            if count:
                rest = without(monomial, atom)
                terms[rest] = terms.get(rest, 0) + value
        return _make(terms)

    def as_affine(self) -> tuple[int, dict[Symbol, int]] | None:
        """(constant, {symbol: coefficient}) when every term is a constant or a multiple of one symbol."""
        constant = 0
        coefficients: dict[Symbol, int] = {}
        for monomial, value in self.terms.items():
            if not monomial:
                constant = value
            elif len(monomial) == 1 and type(monomial[0]) is Symbol:
                coefficients[monomial[0]] = value
            else:
                return None
        return constant, coefficients

    def substitute(self, mapping: Mapping[Expr, Size]) -> Size:
        """All occurrences of the keys (atoms, usually symbols) replaced at once."""
        return _substitute(self, mapping, {})

    def evaluate(self, values: Mapping[Symbol, int]) -> int:
        """The value for these values of all free symbols. Raises KeyError for one that is missing."""
        total = 0
        for monomial, product in self.terms.items():
            for atom in monomial:
                product *= atom._value(values)
            total += product
        return total

    def _value(self, values: Mapping[Symbol, int]) -> int:
        return self.evaluate(values)

    # text ------------------------------------------------------------------------------------
    def __str__(self) -> str:
        if self._text is None:
            self._text = _print(self)
        return self._text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[Callable[..., Size], tuple[str, tuple[Declared, ...]]]:
        symbols = tuple((s.name, s.lower, s.upper) for s in sorted(self.free_symbols, key=str))
        return _rebuild, (str(self), symbols)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Poly(Expr):
    """A sum or product; interned by its terms."""

    __slots__ = ()


class Atom(Expr):
    """What polynomials are made of."""

    __slots__: tuple[str, ...] = ()

    def _own_symbols(self) -> frozenset[Symbol]:
        return frozenset().union(*(e.free_symbols for e in self.arguments() if isinstance(e, Expr)))

    @property
    def weight(self) -> int:
        if self._weight is None:
            self._weight = sum(e.weight if isinstance(e, Expr) else 1 for e in self.arguments()) or 1
        return self._weight

    def arguments(self) -> tuple[Size, ...]:
        """The operands of the operation."""
        return ()


class Symbol(Atom):
    """A named unknown integer; `lower` and `upper` are inclusive and None when unknown."""

    __slots__ = ("name", "lower", "upper")
    name: str
    lower: int | None
    upper: int | None

    @property
    def of_data(self) -> bool:
        """Whether the program computes it from data; SymbolTable.new gives such symbols names of their own."""
        return self.name.startswith("u")

    def _own_symbols(self) -> frozenset[Symbol]:
        return frozenset((self,))

    @property
    def free_symbols(self) -> frozenset[Symbol]:
        if self._free is None:
            self._free = frozenset((self,))
        return self._free

    def _value(self, values: Mapping[Symbol, int]) -> int:
        return values[self]

    def evaluate(self, values: Mapping[Symbol, int]) -> int:
        return values[self]


class FloorDiv(Atom):
    """numerator // denominator, rounded towards minus infinity."""

    __slots__ = ("numerator", "denominator")
    numerator: Size
    denominator: Size

    def arguments(self) -> tuple[Size, ...]:
        return self.numerator, self.denominator

    def _value(self, values: Mapping[Symbol, int]) -> int:
        return _evaluate(self.numerator, values) // _evaluate(self.denominator, values)


class Mod(Atom):
    """numerator % denominator with the sign of the denominator."""

    __slots__ = ("numerator", "denominator")
    numerator: Size
    denominator: Size

    def arguments(self) -> tuple[Size, ...]:
        return self.numerator, self.denominator

    def _value(self, values: Mapping[Symbol, int]) -> int:
        return _evaluate(self.numerator, values) % _evaluate(self.denominator, values)


class Max(Atom):
    """The largest of its operands."""

    __slots__ = ("operands",)
    operands: tuple[Size, ...]

    def arguments(self) -> tuple[Size, ...]:
        return self.operands

    def _value(self, values: Mapping[Symbol, int]) -> int:
        return max(_evaluate(e, values) for e in self.operands)


class Min(Atom):
    """The smallest of its operands."""

    __slots__ = ("operands",)
    operands: tuple[Size, ...]

    def arguments(self) -> tuple[Size, ...]:
        return self.operands

    def _value(self, values: Mapping[Symbol, int]) -> int:
        return min(_evaluate(e, values) for e in self.operands)


_INTERNED: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()  # the key says the class


def _atom(cls: type[A], key: Hashable, fields: tuple[object, ...]) -> A:
    found: A | None = _INTERNED.get(key)
    if found is None:
        found = cls.__new__(cls)
        found._text = found._free = found._weight = None
        for name, value in zip(cls.__slots__, fields):
            setattr(found, name, value)
        found.terms = {(found,): 1}
        _INTERNED[key] = found
    return found


def symbol(name: str, lower: int | None = None, upper: int | None = None) -> Symbol:
    """The symbol of this name and range (inclusive)."""
    return _atom(Symbol, (Symbol, name, lower, upper), (name, lower, upper))


def _as_size(value: object) -> Size | None:
    if isinstance(value, (Expr, int)):
        return int(value) if type(value) is bool else value
    return None


def _make(terms: dict[Monomial, int]) -> Size:
    """The interned size of these terms; takes the dict over."""
    for coefficient in terms.values():
        if coefficient == 0:
            terms = {m: c for m, c in terms.items() if c}
            break
    if not terms:
        return 0
    if len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        if not monomial:
            return coefficient
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    key = frozenset(terms.items())
    found: Poly | None = _INTERNED.get(key)
    if found is None:
        found = Poly.__new__(Poly)
        # Whoever made it first: generated code, and so the keys of what is built, have them in this order.
        found.terms = dict(sorted(terms.items(), key=_row_major)) if len(terms) > 1 else terms
        found._text = found._free = found._weight = None
        _INTERNED[key] = found
    return found


def _row_major(term: tuple[Monomial, int]) -> tuple[bool, int, int, list[str]]:
    """Places of a row-major tensor from its first dim to its last, the constant at the end."""
    monomial, coefficient = term
    return not monomial, -len(monomial), -abs(coefficient), [str(atom) for atom in monomial]


def _merge(left: Monomial, right: Monomial) -> Monomial:
    if not left:
        return right
    if not right:
        return left
    return tuple(sorted(left + right, key=str))


def floordiv(numerator: Size, denominator: Size) -> Size:
    """numerator // denominator. Raises ZeroDivisionError for a denominator of 0."""
    if not isinstance(denominator, Expr):
        return _floordiv_constant(numerator, denominator) if isinstance(numerator, Expr) else numerator // denominator
    if type(numerator) is int and numerator == 0:
        return 0
    quotient, rest = _divide(numerator, denominator)
    if type(rest) is int and rest == 0:
        return quotient
    if len(denominator.terms) == 1 and isinstance(rest, Expr):
        rest, denominator = _cancel(rest, denominator)
        if not isinstance(denominator, Expr):
            return quotient + floordiv(rest, denominator)
    return quotient + _atom(FloorDiv, (FloorDiv, rest, denominator), (rest, denominator))


def mod(numerator: Size, denominator: Size) -> Size:
    """numerator % denominator. Raises ZeroDivisionError for a denominator of 0."""
    if not isinstance(denominator, Expr):
        return _mod_constant(numerator, denominator) if isinstance(numerator, Expr) else numerator % denominator
    if type(numerator) is int and numerator == 0:
        return 0
    _, rest = _divide(numerator, denominator)
    if type(rest) is int and rest == 0:
        return 0
    return _atom(Mod, (Mod, rest, denominator), (rest, denominator))


def _floordiv_constant(numerator: Expr, denominator: int) -> Size:
    if denominator == 0:
        raise ZeroDivisionError(f"`{numerator}` divided by 0")
    if denominator < 0:
        return floordiv(-numerator, -denominator)
    if denominator == 1:
        return numerator
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    common = denominator
    for monomial, coefficient in numerator.terms.items():
        if coefficient % denominator == 0 or not monomial:
            quotient[monomial] = coefficient // denominator
            coefficient %= denominator
        if coefficient:
            rest[monomial] = coefficient
            if monomial:
                common = math.gcd(common, coefficient)
    whole = _make(quotient)
    if not any(rest):  # only a constant below the denominator is left
        return whole
    if common > 1:
        inner = _make({m: c // common for m, c in rest.items()})
        return whole + floordiv(inner, denominator // common)
    left = _make(rest)
    if type(left) is FloorDiv and _is_positive(left.denominator):
        return whole + floordiv(left.numerator, left.denominator * denominator)
    return whole + _atom(FloorDiv, (FloorDiv, left, denominator), (left, denominator))


def _mod_constant(numerator: Expr, denominator: int) -> Size:
    if denominator == 0:
        raise ZeroDivisionError(f"`{numerator}` modulo 0")
    if denominator < 0:
        return -mod(-numerator, -denominator)
    if denominator == 1:
        return 0
    rest: dict[Monomial, int] = {}
    common = denominator
    for monomial, coefficient in numerator.terms.items():
        coefficient %= denominator
        if coefficient:
            rest[monomial] = coefficient
            if monomial:
                common = math.gcd(common, coefficient)
    if not any(rest):
        return rest.get((), 0)
    if common > 1:
        below = rest.get((), 0) % common
        inner = _make({m: c // common for m, c in rest.items()})
        return common * mod(inner, denominator // common) + below
    left = _make(rest)
    if type(left) is Mod and _divides(denominator, left.denominator):
        return mod(left.numerator, denominator)
    return _atom(Mod, (Mod, left, denominator), (left, denominator))


def _divide(numerator: Size, denominator: Expr) -> tuple[Size, Size]:
    """(q, r) with numerator == q * denominator + r, by long division on one leading term of the denominator."""
    if not isinstance(numerator, Expr):
        return 0, numerator
    lead, factor = max(denominator.terms.items(), key=lambda term: (len(term[0]), str(term[0])))
    single = len(denominator.terms) == 1
    quotient: Size = 0
    rest: Size = numerator
    for monomial, coefficient in numerator.terms.items():
        cofactor = _cofactor(monomial, lead)
        if cofactor is not None and coefficient % factor == 0:
            step = _make({cofactor: coefficient // factor})
            quotient, rest = quotient + step, rest - step * denominator
    if single or type(rest) is int:
        return quotient, rest
    return 0, numerator


def _cancel(numerator: Expr, denominator: Expr) -> tuple[Size, Size]:
    """Removes a positive common factor of every term."""
    ((lead, factor),) = denominator.terms.items()
    for atom in dict.fromkeys(lead):
        if _is_positive(atom) and all(atom in monomial for monomial in numerator.terms):
            above = _make({without(m, atom): c for m, c in numerator.terms.items()})
            below = _make({without(lead, atom): factor})
            return _cancel(above, below) if isinstance(above, Expr) and isinstance(below, Expr) else (above, below)
    return numerator, denominator


def without(monomial: Monomial, atom: Atom) -> Monomial:
    """The product with the atom one time less. Raises ValueError where it is not in there."""
    rest = list(monomial)
    rest.remove(atom)
    return tuple(rest)


def _cofactor(monomial: Monomial, factor: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _is_positive(size: Size) -> bool:
    if type(size) is int:
        return size > 0
    return type(size) is Symbol and size.lower is not None and size.lower > 0


def _divides(divisor: int, size: Size) -> bool:
    return type(size) is int and size % divisor == 0


def maximum(*operands: Size) -> Size:
    """The largest operand."""
    return _extremum(Max, max, operands)


def minimum(*operands: Size) -> Size:
    """The smallest operand."""
    return _extremum(Min, min, operands)


def _extremum(cls: type[Max | Min], choose: Callable[[int, int], int], operands: tuple[Size, ...]) -> Size:
    constant: int | None = None
    symbolic: dict[Expr, None] = {}
    for operand in operands:
        for size in operand.operands if isinstance(operand, cls) else (operand,):
            if isinstance(size, Expr):
                symbolic[size] = None
            else:
                constant = size if constant is None else choose(constant, size)
    kept = _undominated(list(symbolic), choose)
    everything: list[Size] = [*kept]
    if constant is not None:
        everything = [e for e in kept if not _beaten_by_constant(e, constant, choose)]
        if not any(_beats_constant(e, constant, choose) for e in kept):
            everything.append(constant)
    if len(everything) == 1:
        return everything[0]
    ordered = tuple(sorted(everything, key=str))
    return _atom(cls, (cls, frozenset(ordered)), (ordered,))


def _undominated(expressions: list[Expr], choose: Callable[[int, int], int]) -> list[Expr]:
    """Without those that differ from another by a constant in the wrong direction."""
    kept: list[Expr] = []
    for expression in expressions:
        for place, other in enumerate(kept):
            difference = expression - other
            if type(difference) is int:
                kept[place] = other if choose(difference, 0) == 0 else expression
                break
        else:
            kept.append(expression)
    return kept


def _beats_constant(e: Expr, constant: int, choose: Callable[[int, int], int]) -> bool:
    if type(e) is not Symbol:
        return False
    return e.lower is not None and e.lower >= constant if choose is max else e.upper is not None and e.upper <= constant


def _beaten_by_constant(e: Expr, constant: int, choose: Callable[[int, int], int]) -> bool:
    if type(e) is not Symbol:
        return False
    return e.upper is not None and e.upper < constant if choose is max else e.lower is not None and e.lower > constant


REBUILD: dict[type, Callable[..., Size]] = {FloorDiv: floordiv, Mod: mod, Max: maximum, Min: minimum}


def _substitute(size: Size, mapping: Mapping[Expr, Size], memo: dict[Expr, Size]) -> Size:
    if not isinstance(size, Expr):
        return size
    if size in mapping:
        return mapping[size]
    if size in memo:
        return memo[size]
    if isinstance(size, Symbol):
        return size
    if isinstance(size, Atom):
        old = size.arguments()
        new = tuple(_substitute(a, mapping, memo) for a in old)
        result = size if all(a is b for a, b in zip(old, new)) else REBUILD[type(size)](*new)
    else:
        result = _substitute_poly(size, mapping, memo)
    memo[size] = result
    return result


def _substitute_poly(size: Expr, mapping: Mapping[Expr, Size], memo: dict[Expr, Size]) -> Size:
    replaced = {atom: _substitute(atom, mapping, memo) for atom in size.atoms()}
    if all(atom is new for atom, new in replaced.items()):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms.items():
        product: Size = coefficient
        for atom in monomial:
            product = replaced[atom] * product
        total = total + product
    return total


def _evaluate(size: Size, values: Mapping[Symbol, int]) -> int:
    return size.evaluate(values) if isinstance(size, Expr) else size


def _term_order(term: tuple[Monomial, int]) -> tuple[bool, int, list[str]]:
    monomial, _ = term
    return (not monomial, -len(monomial), [str(atom) for atom in monomial])


def _print(size: Expr) -> str:
    if isinstance(size, Atom):
        return PRINT[type(size)](size)
    parts: list[str] = []
    for monomial, coefficient in sorted(size.terms.items(), key=_term_order):
        factors = [str(atom) for atom in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} " if parts else ("-" if coefficient < 0 else ""))
        parts.append("*".join(factors))
    return "".join(parts)


def _print_operand(size: Size) -> str:
    text = str(size)
    return text if isinstance(size, Atom) or type(size) is int and size >= 0 else f"({text})"


PRINT: dict[type[Atom], Callable[[Any], str]] = {  # called with atoms of the class
    Symbol: lambda e: e.name,
    FloorDiv: lambda e: f"({_print_operand(e.numerator)} // {_print_operand(e.denominator)})",
    Mod: lambda e: f"({_print_operand(e.numerator)} % {_print_operand(e.denominator)})",
    Max: lambda e: f"max({', '.join(map(str, e.operands))})",
    Min: lambda e: f"min({', '.join(map(str, e.operands))})",
}


def _rebuild(text: str, symbols: tuple[Declared, ...]) -> Size:
    return parse(text, {name: symbol(name, lower, upper) for name, lower, upper in symbols})


BINARY: dict[type, Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
    ast.Pow: operator.pow,
}
CALLS: dict[str, Callable[..., Size]] = {"max": maximum, "min": minimum}


def parse(text: str, names: Mapping[str, Size]) -> Size:
    """The inverse of `str`. Raises ValueError for anything that is not a size."""

    def visit(node: ast.AST) -> Size:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -visit(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return BINARY[type(node.op)](visit(node.left), visit(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            return CALLS[node.func.id](*map(visit, node.args))
        raise ValueError(f"not a size: `{ast.unparse(node)}` in `{text}`")

    return visit(ast.parse(text, mode="eval").body)


class Condition:
    """The relation `expr op 0`; make one with the class methods. Never true or false by itself."""

    __slots__ = ("op", "expr")
    op: str
    expr: Size

    def __init__(self, op: str, expr: Size) -> None:
        self.op, self.expr = op, expr

    @classmethod
    def compare(cls, op: str, left: Size, right: Size) -> Condition:
        """`left op right`."""
        return cls(op, left - right)

    def evaluate(self, values: Mapping[Symbol, int]) -> bool:
        """Whether it holds for these values."""
        return COMPARE[self.op](_evaluate(self.expr, values), 0)

    def negate(self) -> Condition:
        """The condition that holds exactly when this one does not."""
        return Condition(NEGATED[self.op], self.expr)

    def substitute(self, mapping: Mapping[Expr, Size]) -> Condition:
        """With the symbols replaced."""
        return Condition(self.op, self.expr.substitute(mapping) if isinstance(self.expr, Expr) else self.expr)

    @property
    def free_symbols(self) -> frozenset[Symbol]:
        """The symbols it depends on."""
        return self.expr.free_symbols if isinstance(self.expr, Expr) else frozenset()

    def __eq__(self, other: object) -> bool:
        return type(other) is Condition and self.op == other.op and self.expr == other.expr

    def __hash__(self) -> int:
        return hash((self.op, self.expr))

    def __bool__(self) -> bool:
        raise TypeError(f"the condition `{self}` has no truth by itself; ask the SymbolTable (guard or is_true)")

    def __str__(self) -> str:
        """Python syntax with positive terms on either side: `s0 == 2*s1` rather than `s0 - 2*s1 == 0`."""
        if not isinstance(self.expr, Expr):
            return f"{self.expr} {self.op} 0"
        left = _make({m: c for m, c in self.expr.terms.items() if m and c > 0})
        right = left - self.expr
        if left == 0:
            return f"{right} {MIRRORED[self.op]} 0"
        return f"{left} {self.op} {right}"

    __repr__ = __str__


COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""What holds of (b, a), and of -x and 0, where the operator does of (a, b), and of x and 0."""
