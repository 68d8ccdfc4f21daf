"""Proofs of `expression op 0` from ranges and from facts: expressions known to be 0 or more.

What is tried, in order: bounds; divisibility (2*s0 + 1 is never 0); a product of factors that are not 0; and taking a multiple of a
fact away, which proves `s0 + s1 >= 5` from `s0 >= s1` and `s1 >= 3`. Nothing here guesses: no proof means None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .expr import Condition, Expr, FloorDiv, Max, Min, Mod, Size, _make, mod, symbol
from .ranges import Bound, Ranges, bounds

MOST_FACTS = 24  # looked at for one question, the latest first
DEPTH = 2  # facts combined in one proof


def decide(op: str, expr: Size, ranges: Ranges, facts: Sequence[Expr]) -> bool | None:
    """Whether `expr op 0` holds for all values that are allowed, for none (False), or neither is proved (None)."""
    if not isinstance(expr, Expr):
        return Condition(op, expr).evaluate({})
    low, high = bounds(expr, ranges)
    verdict = BY_BOUNDS[op](low, high)
    if verdict is None and op in ("==", "!=") and (_never_whole(expr) or _nonzero_product(expr, ranges)):
        verdict = op == "!="
    if verdict is None:
        latest = facts[-MOST_FACTS:]
        related = [f for f in latest if not f.free_symbols.isdisjoint(expr.free_symbols)] + _facts_of_atoms(expr)
        if related or _has_products(expr):
            verdict = BY_FACTS[op](expr, Prover(ranges, related, latest))
    return verdict


def _facts_of_atoms(expr: Expr) -> list[Expr]:
    """What quotients and extrema are by definition: `4 * (s0 // 4)` is at most s0, and more than s0 - 4."""
    found: list[Size] = []
    for atom in expr.atoms():
        if type(atom) is FloorDiv and type(atom.denominator) is int and atom.denominator > 0:
            below = atom.numerator - atom.denominator * atom
            found += [below, atom.denominator - 1 - below]
        elif type(atom) is Max:
            found += [atom - e for e in atom.operands]
        elif type(atom) is Min:
            found += [e - atom for e in atom.operands]
    return [f for f in found if isinstance(f, Expr)]


def _has_products(expr: Expr) -> bool:
    return any(len(monomial) > 1 for monomial in expr.terms)


def _from_zero(expr: Expr, ranges: Ranges) -> Size:
    """The same with symbols that count from their lower bounds: s0*s0 - 2*s0 becomes t*t + 2*t where s0 is t + 2."""
    shifted: dict[Expr, Size] = {}
    for s in expr.free_symbols:
        low, high = bounds(s, ranges)
        if isinstance(low, int) and low != 0:
            shifted[s] = low + symbol(f"{s.name} - {low}", 0, high - low if isinstance(high, int) else None)
    return expr.substitute(shifted) if shifted else expr


def facts_of(condition: Condition) -> list[Expr]:
    """What is 0 or more when the condition holds."""
    expr = condition.expr
    found = {">=": [expr], ">": [expr - 1], "<=": [-expr], "<": [-expr - 1], "==": [expr, -expr], "!=": []}[condition.op]
    return [f for f in found if isinstance(f, Expr)]


def whole_multiples(expr: Size) -> Size:
    """`d * (x // d)` written as `x - x % d`, so that statements about quotients and remainders meet."""
    if not isinstance(expr, Expr):
        return expr
    for monomial, coefficient in expr.terms.items():
        for atom in monomial:
            if type(atom) is FloorDiv and type(atom.denominator) is int and coefficient % atom.denominator == 0:
                others = list(monomial)
                others.remove(atom)
                scale = _make({tuple(others): coefficient // atom.denominator})
                rest = expr - _make({monomial: coefficient})
                return whole_multiples(rest + scale * (atom.numerator - mod(atom.numerator, atom.denominator)))
    return expr


def known_value(condition: Condition) -> tuple[Expr, Size] | None:
    """(atom, its value) from an equation like `s0 % 4 == 1`."""
    expr = condition.expr
    if condition.op != "==" or not isinstance(expr, Expr):
        return None
    atoms = [m for m in expr.terms if m]
    if len(atoms) != 1 or len(atoms[0]) != 1 or type(atoms[0][0]) is not Mod or abs(expr.terms[atoms[0]]) != 1:
        return None
    atom = atoms[0][0]
    return atom, atom - expr * expr.terms[atoms[0]]


class Prover:
    """Proves that expressions are 0 or more by taking multiples of facts away until the ranges say so."""

    def __init__(self, ranges: Ranges, first: Sequence[Expr], later: Sequence[Expr]) -> None:
        self.ranges = ranges
        self.facts = (first, later)

    def __call__(self, expr: Size, depth: int = 0) -> bool:
        """Whether `expr >= 0` is proved."""
        if not isinstance(expr, Expr):
            return expr >= 0
        if bounds(expr, self.ranges)[0] >= 0:
            return True
        if _has_products(expr) and bounds(_from_zero(expr, self.ranges), self.ranges)[0] >= 0:
            return True
        if depth == DEPTH:
            return False
        return any(self(rest, depth + 1) for fact in self.facts[min(depth, 1)] for rest in _without_a_term(expr, fact))


def _without_a_term(expr: Expr, fact: Expr) -> list[Size]:
    """`a*expr - b*fact` with a, b > 0 in which a term of both is gone: 0 or more only if expr is, given the fact."""
    found = []
    for monomial, coefficient in fact.terms.items():
        mine = expr.terms.get(monomial, 0) if monomial else 0
        if mine * coefficient > 0:
            common = math.gcd(mine, coefficient)
            found.append(expr * (abs(coefficient) // common) - fact * (abs(mine) // common))
    return found


def _never_whole(expr: Expr) -> bool:
    """Whether all coefficients share a divisor that the constant does not have."""
    constant = expr.terms.get((), 0)
    common = math.gcd(*(c for m, c in expr.terms.items() if m))
    return constant % common != 0


def _nonzero_product(expr: Expr, ranges: Ranges) -> bool:
    if len(expr.terms) != 1:
        return False
    ((monomial, _),) = expr.terms.items()
    return all(low > 0 or high < 0 for low, high in (bounds(a, ranges) for a in monomial))


def _when(yes: bool, no: bool) -> bool | None:
    return True if yes else False if no else None


BY_BOUNDS: dict[str, Callable[[Bound, Bound], bool | None]] = {
    "==": lambda low, high: _when(low == high == 0, low > 0 or high < 0),
    "!=": lambda low, high: _when(low > 0 or high < 0, low == high == 0),
    "<": lambda low, high: _when(high < 0, low >= 0),
    "<=": lambda low, high: _when(high <= 0, low > 0),
    ">": lambda low, high: _when(low > 0, high <= 0),
    ">=": lambda low, high: _when(low >= 0, high < 0),
}
BY_FACTS: dict[str, Callable[[Expr, Prover], bool | None]] = {
    "==": lambda e, p: False if p(e - 1) or p(-e - 1) else True if p(e) and p(-e) else None,
    "!=": lambda e, p: True if p(e - 1) or p(-e - 1) else False if p(e) and p(-e) else None,
    "<": lambda e, p: True if p(-e - 1) else False if p(e) else None,
    "<=": lambda e, p: True if p(-e) else False if p(e - 1) else None,
    ">": lambda e, p: True if p(e - 1) else False if p(-e) else None,
    ">=": lambda e, p: True if p(e) else False if p(-e - 1) else None,
}
