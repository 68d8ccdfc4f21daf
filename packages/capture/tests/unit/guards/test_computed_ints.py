"""Ints that Python computes from a number that changes: symbols, whose value is computed anew for each call."""

import math

import pytest
import torch
from test_changing_numbers import X, graphs_of
from tracework_capture import optimize

FROM_INTS = {
    "power of two": lambda x, n: x * 2**n,
    "shift": lambda x, n: x * (1 << abs(n)),
    "low bits": lambda x, n: x * (n & 3) + (n ^ 1),
    "quotient by a negative number": lambda x, n: x * (n // -2),
    "greatest common divisor": lambda x, n: x * math.gcd(n, 4),
    "power by a modulus": lambda x, n: x * pow(abs(n), 3, 7) + pow(3, abs(n), 5),
    "number of bits": lambda x, n: x + int(math.log2(abs(n) + 1)),
}
FROM_FLOATS = {
    "rounded": lambda x, s: x * round(s),
    "cut off": lambda x, s: x * int(s * 6),
    "floor": lambda x, s: x + math.floor(s / 0.3),
    "ceiling of a power": lambda x, s: x + math.ceil(s**2),
    "computed twice": lambda x, s: x * int(s * 6) + (int(s * 6) & 1),
}


@pytest.mark.parametrize("function", FROM_INTS.values(), ids=FROM_INTS)
def test_of_ints(function):
    assert graphs_of(function, [(X, n) for n in (3, 4, 5, 8, 9, 2, 7, 30)]) == 2
    assert graphs_of(function, [(X, n) for n in (3, 0, 1, -1, 2, -4, True, 61, 62, 63, 200, 5)]) <= 8


@pytest.mark.parametrize("function", FROM_FLOATS.values(), ids=FROM_FLOATS)
def test_of_floats(function):
    assert graphs_of(function, [(X, s) for s in (0.3, 0.7, 2.5, 1.5, 9.0, 0.1)]) == 2
    graphs_of(function, [(X, s) for s in (0.3, 0.7, -0.4, 0.0, math.inf, math.nan, 1e30, 1, True, 2.5)])


def test_sizes_that_are_computed():
    assert graphs_of(lambda x, s: x.repeat(9, 1)[: int(s * 9)], [(X, s) for s in (0.3, 0.5, 0.9, 1.5, 0.7)]) == 2
    squares = [(torch.arange(n * n * 2.0).reshape(n * n, 2),) for n in (3, 4, 6, 5)]
    assert graphs_of(lambda x: x.reshape(int(len(x) ** 0.5), int(math.sqrt(x.shape[0])), 2).sum(0), squares) == 2


def test_what_steers_is_guarded():
    calls = [(X, n) for n in (3, 5, 4, 8, 7, 2, 9)]
    assert graphs_of(lambda x, n: x * 2 if n & 1 else x + n, calls) == 3
    assert graphs_of(lambda x, n: sum(x * i for i in range(n % 2 + (n & 2))) + x, [(X, n) for n in (1, 2, 3, 5, 6)]) <= 5


PLACES = {
    "slice": lambda x, n: x[:n] * 2,
    "tail": lambda x, n: x[n:] + 1,
    "window": lambda x, n: x[n : n + 2].sum(0),
    "index": lambda x, n: x[n] * 2,
    "largest": lambda x, n: x.topk(n)[0],
    "narrow": lambda x, n: x.narrow(1, n, 1),
    "range": lambda x, n: torch.arange(n, n + 4) * x,
    "diagonal": lambda x, n: x.triu(n),
    "turned": lambda x, n: x.roll(n, 0),
    "broadcast": lambda x, n: x[:n] + x[:1],
    "one row": lambda x, n: x[:n].squeeze(0) * 1,
}


@pytest.mark.parametrize("function", PLACES.values(), ids=PLACES)
def test_places_and_sizes_from_one_on_share_a_graph(function):
    """Also 0, as a place; what 0 is the size of is compiled by itself."""
    assert graphs_of(function, [(X, n) for n in (2, 1, 2, 1)]) == 2
    graphs_of(function, [(X, n) for n in (2, 1, 0, 3, -1, 4, 2, -3, 0, 5)])


BOUNDED = {
    "factor": lambda x, n: x * min(max(n, 2), 7),
    "size": lambda x, n: x[: max(n, 1)] * 2,
    "size of two": lambda x, n: x[: min(n, 2)] * 2,
    "index": lambda x, n: x[max(0, min(n, 2))],
    "steers": lambda x, n: x * 2 if max(n, 3) == 3 else x + min(n, 8),
}


@pytest.mark.parametrize("function", BOUNDED.values(), ids=BOUNDED)
def test_least_and_largest_of_ints_are_expressions(function):
    assert graphs_of(function, [(X, n) for n in (2, 3, 1, 5, 9, 4)]) <= (
        3 if function in (BOUNDED["steers"], BOUNDED["size"]) else 2
    )
    graphs_of(function, [(X, n) for n in (3, 0, -1, 2, True, 70, -5)])


def test_powers_of_math_are_floats():
    def function(x, n):
        try:
            return x * 2, math.pow(n, 2), math.pow(2, n), math.pow(n, -1), n**2
        except ValueError as error:  # where pow() raises a ZeroDivisionError
            return x * 3, error.args

    compiled = optimize(lambda gm, inputs: gm.forward)(function)
    for n in (3, 5, 4, 2, 0, -1, 2.0, 3.5, 0.0):
        assert repr(compiled(X, n)) == repr(function(X, n))


LARGE = {
    "power": lambda n: 10**n,
    "power by its function": lambda n: pow(3, n),
    "shift": lambda n: 1 << n,
    "factorial": math.factorial,
    "choices": lambda n: math.comb(n, n // 2),
    "orders": math.perm,
    "rounded": lambda n: round(5, -n),
    "decision": lambda n: 2**n > 5,
    "float": lambda n: 7**n / 3,
}


@pytest.mark.parametrize("computed", LARGE.values(), ids=LARGE)
def test_no_guard_computes_what_the_program_would_not(computed):
    function = lambda x, n: x if n > 10**6 else x * computed(n)
    graphs_of(function, [(X, n) for n in (2, 3, 4, 6, 10**12, 5, 500, 10**12)])


def test_large_ints_on_the_way_are_python_s():
    graphs_of(lambda x, n: x * (10**n // 10 ** (n - 1)) + (3**n % 7), [(X, n) for n in (2, 3, 30, 1500, 4, 2000)])
