"""What follows from the ranges of symbols: bounds of an expression, proofs, and simplification of // and %.

A range is (lower, upper), inclusive; either may be None or infinite when unknown, and an upper bound may itself be an
expression (a loop variable runs to `s0 - 1`). Ranges given by the caller win over those of the symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .expr import Atom, Expr, FloorDiv, Max, Min, Mod, Monomial, Size, Symbol, _make, floordiv, maximum, minimum, mod

INF = math.inf
Bound = int | float  # a float is infinite
Bounds = tuple[Bound, Bound]
Range = tuple[Bound | Expr | None, Bound | Expr | None]
Ranges = Mapping[Symbol, Range]
NO_RANGES: Ranges = {}


def bounds(size: Size, ranges: Ranges = NO_RANGES) -> Bounds:
    """(lowest, highest) value the size can have; -inf and inf when unknown. Never too narrow."""
    if not isinstance(size, Expr):
        return size, size
    if type(size) is Symbol:
        return _symbol_bounds(size, ranges)
    if isinstance(size, Atom):
        return ATOM_BOUNDS[type(size)](size, ranges)
    low: Bound = 0
    high: Bound = 0
    for monomial, coefficient in size.terms.items():
        product: Bounds = (coefficient, coefficient)
        for atom, power in _powers(monomial):
            product = _interval_product(product, _interval_power(bounds(atom, ranges), power))
        low, high = low + product[0], high + product[1]
    return low, high


def _symbol_bounds(atom: Symbol, ranges: Ranges) -> Bounds:
    low, high = ranges.get(atom, (None, None))
    low = atom.lower if low is None else low
    high = atom.upper if high is None else high
    if isinstance(low, Expr):
        low = bounds(low, {k: v for k, v in ranges.items() if k is not atom})[0]
    if isinstance(high, Expr):
        high = bounds(high, {k: v for k, v in ranges.items() if k is not atom})[1]
    return (-INF if low is None else low), (INF if high is None else high)


def _powers(monomial: Monomial) -> list[tuple[Atom, int]]:
    if len(monomial) < 2:
        return [(atom, 1) for atom in monomial]
    return [(atom, monomial.count(atom)) for atom in dict.fromkeys(monomial)]


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b


def _interval_product(a: Bounds, b: Bounds) -> Bounds:
    ends = [_times(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _interval_power(interval: Bounds, power: int) -> Bounds:
    if power == 1:
        return interval
    low, high = interval[0] ** power, interval[1] ** power
    if power % 2:
        return low, high
    if interval[0] <= 0 <= interval[1]:
        return 0, max(low, high)
    return min(low, high), max(low, high)


def _quotient(a: Bound, b: Bound) -> Bound:
    if abs(a) == INF:
        return a if b > 0 else -a
    return (0 if a >= 0 else -1) if b == INF else a // b


def _floordiv_bounds(atom: FloorDiv, ranges: Ranges) -> Bounds:
    low, high = bounds(atom.numerator, ranges)
    least, most = bounds(atom.denominator, ranges)
    if least <= 0:
        return -INF, INF
    ends = [_quotient(a, b) for a in (low, high) for b in (least, most)]
    return min(ends), max(ends)


def _mod_bounds(atom: Mod, ranges: Ranges) -> Bounds:
    least, most = bounds(atom.denominator, ranges)
    if least <= 0:
        return -INF, INF
    low, high = bounds(atom.numerator, ranges)
    return 0, (min(most - 1, high) if low >= 0 else most - 1)


def _max_bounds(atom: Max, ranges: Ranges) -> Bounds:
    ends = [bounds(e, ranges) for e in atom.operands]
    return max(e[0] for e in ends), max(e[1] for e in ends)


def _min_bounds(atom: Min, ranges: Ranges) -> Bounds:
    ends = [bounds(e, ranges) for e in atom.operands]
    return min(e[0] for e in ends), min(e[1] for e in ends)


ATOM_BOUNDS: dict[type[Atom], Callable[[Any, Ranges], Bounds]] = {  # called with atoms of the class
    FloorDiv: _floordiv_bounds,
    Mod: _mod_bounds,
    Max: _max_bounds,
    Min: _min_bounds,
}


def is_nonnegative(size: Size, ranges: Ranges = NO_RANGES) -> bool:
    """Whether `size >= 0` follows from the ranges. False means not proved."""
    if not isinstance(size, Expr):
        return size >= 0
    if bounds(size, ranges)[0] >= 0:
        return True
    worst = _at_symbolic_bounds(size, ranges)
    return worst is not size and is_nonnegative(worst, ranges)


def _at_symbolic_bounds(size: Expr, ranges: Ranges) -> Size:
    """The size with each symbol whose bound is an expression put to the bound that makes it smallest."""
    for variable in sorted(size.free_symbols, key=str):
        low, high = ranges.get(variable, (None, None))
        if not (isinstance(low, Expr) or isinstance(high, Expr)):
            continue
        factor = size.coefficient(variable)
        if factor is None:
            continue
        least, most = bounds(factor, ranges)
        if least >= 0 and isinstance(low, (int, Expr)):
            return size.substitute({variable: low})
        if most <= 0 and isinstance(high, (int, Expr)):
            return size.substitute({variable: high})
    return size


def simplify(size: Size, ranges: Ranges = NO_RANGES) -> Size:
    """An equal expression for all values within the ranges, with as few // and % as these rules can reach."""
    if not isinstance(size, Expr) or isinstance(size, Symbol):
        return size
    memo: dict[Expr, Size] = {}
    return _recombine(_simplify(size, ranges, memo), ranges)


def _simplify(size: Size, ranges: Ranges, memo: dict[Expr, Size]) -> Size:
    if not isinstance(size, Expr) or isinstance(size, Symbol):
        return size
    if size in memo:
        return memo[size]
    if isinstance(size, Atom):
        arguments = [_recombine(_simplify(a, ranges, memo), ranges) for a in size.arguments()]
        result = ATOM_SIMPLIFY[type(size)](arguments, ranges)
    else:
        replaced: dict[Expr, Size] = {a: new for a in size.atoms() if (new := _simplify(a, ranges, memo)) is not a}
        result = size.substitute(replaced) if replaced else size
    memo[size] = result
    return result


def _simplify_floordiv(arguments: list[Size], ranges: Ranges) -> Size:
    numerator, denominator = arguments
    result = floordiv(numerator, denominator)
    if not isinstance(result, Expr):
        return result
    for atom in [a for a in result.atoms() if type(a) is FloorDiv]:
        smaller = _reduce_floordiv(atom, ranges)
        if smaller is not atom:
            result = result.substitute({atom: smaller})
            if not isinstance(result, Expr):
                return result
    return result


def _reduce_floordiv(atom: FloorDiv, ranges: Ranges) -> Size:
    n, d = atom.numerator, atom.denominator
    whole = _constant_quotient(n, d, ranges)
    if whole is not None:
        return whole
    split = _split_below(n, d, ranges)
    if split is not None:
        multiple, _, divisor, factor = split
        inner = floordiv(multiple, factor)
        return _simplify_floordiv([multiple, factor], ranges) if isinstance(inner, Expr) else inner
    return atom


def _simplify_mod(arguments: list[Size], ranges: Ranges) -> Size:
    result = mod(*arguments)
    if not isinstance(result, Expr):
        return result
    for atom in [a for a in result.atoms() if type(a) is Mod]:
        smaller = _reduce_mod(atom, ranges)
        if smaller is not atom:
            result = result.substitute({atom: smaller})
            if not isinstance(result, Expr):
                return result
    return result


def _reduce_mod(atom: Mod, ranges: Ranges) -> Size:
    n, d = atom.numerator, atom.denominator
    whole = _constant_quotient(n, d, ranges)
    if whole is not None:
        return n - whole * d
    split = _split_below(n, d, ranges)
    if split is not None:
        multiple, rest, divisor, factor = split
        return divisor * _simplify_mod([multiple, factor], ranges) + rest
    return atom


def _constant_quotient(n: Size, d: Size, ranges: Ranges) -> int | None:
    """k when k*d <= n < (k+1)*d always holds."""
    low, high = bounds(n, ranges)
    if isinstance(d, int) and isinstance(low, int) and isinstance(high, int):
        return low // d if low // d == high // d else None
    if is_nonnegative(n, ranges) and is_nonnegative(d - n - 1, ranges):
        return 0
    if is_nonnegative(-n - 1, ranges) and is_nonnegative(n + d, ranges):
        return -1
    return None


def _split_below(n: Size, d: Size, ranges: Ranges) -> tuple[Size, Size, Size, Size] | None:
    """n == divisor * multiple + rest with d == divisor * factor and 0 <= rest < divisor, if there is such a split."""
    if not isinstance(n, Expr) or len(n.terms) < 2:
        return None
    for divisor in _candidate_divisors(n, d):
        multiple, rest = _split_terms(n, divisor)
        if multiple == 0 or rest == 0 and type(divisor) is int:
            continue
        if is_nonnegative(rest, ranges) and is_nonnegative(divisor - rest - 1, ranges):
            factor = floordiv(d, divisor)
            if divisor * factor - d == 0:
                return multiple, rest, divisor, factor
    return None


def _candidate_divisors(n: Expr, d: Size) -> Sequence[Size]:
    if not isinstance(d, Expr):
        return sorted({math.gcd(d, c) for monomial, c in n.terms.items() if monomial} - {1}, reverse=True)
    found: dict[Size, None] = {d: None}
    if len(d.terms) == 1:
        ((monomial, coefficient),) = d.terms.items()
        for atom in dict.fromkeys(monomial):
            found[_make({(atom,): 1})] = None
        if abs(coefficient) > 1:
            found[abs(coefficient)] = None
    return list(found)


def _split_terms(n: Expr, divisor: Size) -> tuple[Size, Size]:
    multiple: Size = 0
    rest: Size = 0
    for monomial, coefficient in n.terms.items():
        term = _make({monomial: coefficient})
        quotient = floordiv(term, divisor)
        if quotient * divisor - term == 0:
            multiple = multiple + quotient
        elif not monomial and type(divisor) is int:
            multiple, rest = multiple + coefficient // divisor, rest + coefficient % divisor
        else:
            rest = rest + term
    return multiple, rest


def _simplify_extremum(
    combine: Callable[..., Size], choose_first: Callable[[Size, Size], Size]
) -> Callable[[list[Size], Ranges], Size]:
    def rule(arguments: list[Size], ranges: Ranges) -> Size:
        kept: list[Size] = []
        for place, a in enumerate(arguments):
            others = kept + arguments[place + 1 :]
            if not any(is_nonnegative(choose_first(b, a), ranges) for b in others):
                kept.append(a)
        return combine(*kept)

    return rule


ATOM_SIMPLIFY: dict[type[Atom], Callable[[list[Size], Ranges], Size]] = {
    FloorDiv: _simplify_floordiv,
    Mod: _simplify_mod,
    Max: _simplify_extremum(maximum, lambda other, a: other - a),
    Min: _simplify_extremum(minimum, lambda other, a: a - other),
}


def _recombine(size: Size, ranges: Ranges) -> Size:
    """`c*d*(x // d) + c*(x % d)` is `c*x`."""
    if not isinstance(size, Expr) or len(size.terms) < 2:
        return size
    for monomial, coefficient in size.terms.items():
        for atom in monomial:
            if type(atom) is not Mod:
                continue
            others = list(monomial)
            others.remove(atom)
            scale = _make({tuple(others): coefficient})
            whole = floordiv(atom.numerator, atom.denominator)
            wanted = scale * atom.denominator * whole
            if _contains(size, wanted):
                rest = size - wanted - scale * atom
                return _recombine(rest + scale * atom.numerator, ranges)
    return size


def _contains(size: Expr, part: Size) -> bool:
    if not isinstance(part, Expr):
        return False
    return all(size.terms.get(m) == c for m, c in part.terms.items() if m)
