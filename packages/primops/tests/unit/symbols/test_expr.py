"""Expressions against plain integers."""

import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracework_primops.symbols import (
    Condition,
    Expr,
    bounds,
    floordiv,
    is_nonnegative,
    maximum,
    minimum,
    mod,
    parse,
    simplify,
    symbol,
)
from tracework_primops.symbols.symint import nearest_even

A, B, N = symbol("a"), symbol("b"), symbol("n", 2)
SYMBOLS = {"a": A, "b": B, "n": N}
RANGES = {A: (0, 5), B: (-3, 4)}


class Term:
    """A pair: the expression and how to compute it with plain integers."""

    def __init__(self, size, compute):
        self.size, self.compute = size, compute


def leaf(draw):
    return st.one_of(
        st.integers(-6, 12).map(lambda c: Term(c, lambda env: c)),
        st.sampled_from([A, B, N]).map(lambda s: Term(s, lambda env: env[s])),
    )


def combine(children):
    def binary(name, make, compute):
        return st.tuples(children, children).map(
            lambda p: Term(make(p[0].size, p[1].size), lambda env: compute(p[0].compute(env), p[1].compute(env)))
        )

    def divided(make, compute):
        divisor = st.one_of(
            st.integers(1, 8).map(lambda c: Term(c, lambda env: c)),
            st.just(Term(N, lambda env: env[N])),
            st.just(Term(2 * N, lambda env: 2 * env[N])),
            st.just(Term(N + 1, lambda env: env[N] + 1)),
        )
        return st.tuples(children, divisor).map(
            lambda p: Term(make(p[0].size, p[1].size), lambda env: compute(p[0].compute(env), p[1].compute(env)))
        )

    return st.one_of(
        binary("+", lambda a, b: a + b, lambda a, b: a + b),
        binary("-", lambda a, b: a - b, lambda a, b: a - b),
        binary("*", lambda a, b: a * b, lambda a, b: a * b),
        binary("max", maximum, max),
        binary("min", minimum, min),
        divided(floordiv, lambda a, b: a // b),
        divided(mod, lambda a, b: a % b),
    )


terms = st.recursive(leaf(None), combine, max_leaves=8)
values = st.fixed_dictionaries({A: st.integers(0, 5), B: st.integers(-3, 4), N: st.integers(2, 9)})


def value_of(size, env):
    return size.evaluate(env) if isinstance(size, Expr) else size


@settings(max_examples=400, deadline=None, derandomize=True)
@given(terms, values)
def test_value_text_bounds_and_simplification_agree_with_integers(term, env):
    expected = term.compute(env)
    assert value_of(term.size, env) == expected
    assert value_of(simplify(term.size, RANGES), env) == expected
    low, high = bounds(term.size, RANGES)
    assert low <= expected <= high
    assert parse(str(term.size), SYMBOLS) is term.size or type(term.size) is int
    assert eval(str(term.size), {"max": max, "min": min}, {s.name: v for s, v in env.items()}) == expected
    if isinstance(term.size, Expr):
        assert term.size.substitute(env) == expected
    if is_nonnegative(term.size, RANGES):
        assert expected >= 0


def test_equal_expressions_are_one_object():
    assert (A + B) * 2 is 2 * B + A * 2
    assert A - A == 0 and type(A - A) is int
    assert copy.deepcopy(A // 2) is A // 2
    assert pickle.loads(pickle.dumps(A // 2 + B)) is A // 2 + B


@pytest.mark.parametrize(
    "size, expected",
    [
        ((4 * A + B) // 4, "a"),
        ((4 * A + B) % 4, "b"),
        (((4 * A + B) // 8) * 8 + (4 * A + B) % 8, "4*a + b"),
        ((8 * A + 2 * B + 1) % 8, "2*b + 1"),
        ((A * N + B) // N, "(b // n) + a"),
        (mod(A, 6), "a"),
    ],
)
def test_loop_index_forms(size, expected):
    assert str(simplify(size, {A: (0, 5), B: (0, 3)})) == expected


def test_symbolic_loop_bounds():
    i, j = symbol("i"), symbol("j")
    ranges = {j: (0, N - 1)}
    assert simplify((i * N + j) // N, ranges) is i
    assert simplify((i * N + j) % N, ranges) is j


def test_affine_and_coefficient():
    assert (3 * A - B + 7).as_affine() == (7, {A: 3, B: -1})
    assert (A * B).as_affine() is None
    assert (A * N + 3 * A).coefficient(A) is N + 3
    assert (A * A).coefficient(A) is None and (A // 2).coefficient(A) is None


def test_conditions_print_and_negate():
    condition = Condition.compare("<", N, 2 * A)
    assert str(condition) == "n < 2*a"
    assert condition.negate().evaluate({N: 4, A: 2}) and not condition.evaluate({N: 4, A: 2})
    with pytest.raises(TypeError):
        bool(condition)


def test_rounding_to_the_nearest_whole_number():
    """As round() of the quotient, ties to even, for divisors of either sign, known ones too."""
    a, b = symbol("a"), symbol("b")
    numbers = range(-13, 14)
    for x in numbers:
        for y in (-6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6):
            expected = round(Fraction(x, y))
            assert nearest_even(a, b).evaluate({a: x, b: y}) == expected, (x, y)
            assert nearest_even(a, y).evaluate({a: x}) == expected, (x, y)


def test_the_weight_counts_shared_parts_each_time():
    assert A.weight == 1
    assert (A + 3).weight == 3
    assert floordiv(A, N).weight == 2
    size = A
    for _ in range(8):
        size = size * 3 + mod(size, 1000)
    assert size.weight > 2**8


def test_terms_are_in_one_order_whoever_made_the_expression_first():
    """Generated code has them in it: kernels of two processes that compiled other things before are equal."""
    for number, (first, second) in enumerate(((True, False), (False, True))):
        row, column, size = (symbol(f"{name}_{number}_of_orders", 1, None) for name in ("row", "column", "size"))
        made = [row * 512, column, row * size, 7]
        place = made[0] + made[1] if first else made[1] + made[0]
        place = place + made[2] + made[3] if second else made[3] + made[2] + place
        assert [[str(atom).split("_")[0] for atom in monomial] for monomial in place.terms] == [
            ["row", "size"],
            ["row"],
            ["column"],
            [],
        ]
