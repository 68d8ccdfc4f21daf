"""Floats that are computed from ints that change: one graph for all ints where only tensors are computed with them."""

import math

import pytest
import torch
from test_changing_numbers import X, graphs_of
from tracework_capture import optimize

NUMBERS = range(2, 12)
OPEN = {
    "quotient": lambda x, n: x * (n / 2),
    "reciprocal": lambda x, n: x * (1 / n),
    "float": lambda x, n: x * float(n),
    "factor": lambda x, n: x + 0.5 * n,
    "root": lambda x, n: x / math.sqrt(n),
    "half power": lambda x, n: x * n**-0.5,
    "decay": lambda x, n: x * (1 - 0.9**n) / math.sqrt(1 - 0.999**n),
    "logarithm": lambda x, n: x * math.log(n),
    "bounded": lambda x, n: x * min(n / 5, 1.0),
    "digits": lambda x, n: x * round(n / 3, 2),
    "whole numbers": lambda x, n: torch.arange(4) * (n / 2),
    "a tensor of it": lambda x, n: x + torch.tensor(n) + torch.tensor(n / 4),
    "a tensor with it": lambda x, n: x[:2, :2] * torch.tensor([n, 1.5]),
    "a list of positions": lambda x, n: x.repeat(1, 5)[:, [n, 0]],
    "positions to write to": lambda x, n: x.repeat(1, 5).index_fill_(1, torch.tensor([n, 0]), 7.0),
    "floor": lambda x, n: x.repeat(4, 1)[: int(n / 2)],
    "floor of a factor": lambda x, n: x.repeat(4, 1)[: math.floor(n * 0.75)],
    "ceiling": lambda x, n: x.repeat(4, 1)[: math.ceil(n / 3)],
    "nearest": lambda x, n: x.repeat(4, 1)[: round(n / 2) + 1],
    "schedule": lambda x, n: x * (1 - n / 13) ** 0.9,
    "saturation": lambda x, n: x * (1 - math.exp(-n / 4)),
    "epochs": lambda x, n: x * 0.1 ** (n // 4) + math.pow(n, 0.5),
    "always true": lambda x, n: x + (1 if n / 2 > 0 else 2),
}


@pytest.mark.parametrize("function", OPEN.values(), ids=OPEN)
def test_all_ints_share_a_graph(function):
    assert graphs_of(function, [(X, n) for n in NUMBERS]) == 2


def test_a_condition_splits_the_ints_in_two():
    assert graphs_of(lambda x, n: x * 2 if n / 2 >= 3 else x * 3, [(X, n) for n in (3, 4, 5, 8, 9, 2, 30)]) == 3
    assert graphs_of(lambda x, n: x * 2 if n > 4.5 else x * 3, [(X, n) for n in (3, 4, 5, 8, 9, 2, 30)]) == 3


def test_the_whole_number_of_a_root_is_a_size():
    calls = [(X.repeat(4, 1), n) for n in (1, 2, 5, 4, 6, 9, 3, 8, 10, 12)]
    assert graphs_of(lambda x, n: x[: int(math.sqrt(n)) + math.gcd(n, 1)], calls) == 2


def test_with_a_learning_rate():
    steps = [(X, n, 0.1 / n) for n in range(1, 12)]
    assert graphs_of(lambda x, n, lr: x - lr / (1 - 0.9**n) * x * (lr * n), steps) == 2


RAISE = {
    "division": lambda x, n: x * (6 / n),
    "root": lambda x, n: x * math.sqrt(n),
    "logarithm": lambda x, n: x * math.log(n),
    "power": lambda x, n: x * n**-0.5 if n >= 0 else x,
    "overflow": lambda x, n: x * 1e30 ** (n * 1.0),
    "exponential": lambda x, n: x * math.exp(n * 100.0),
    "two": lambda x, n: x * (1 / (n / 2 - 1)),
    "base": lambda x, n: x * (3 - n) ** 0.5 if n < 5 else x * math.log(n - 5),
}


@pytest.mark.parametrize("function", RAISE.values(), ids=RAISE)
def test_what_raises_for_other_ints_raises(function):
    """Python's own exception, at its own place."""
    log, compiled = [], None

    def both(x, n):
        log.append(n)
        return function(x, n)

    compiled = optimize(lambda gm, inputs: gm.forward, recompile_limit=20)(both)
    for n in (3, 5, 4, 0, -2, 7, 2, 11, 6):
        found = [kind_of(call, n) for call in (compiled, both)]
        assert found[0] == found[1]
        assert log[-2:] == [n, n]


def kind_of(call, n):
    try:
        return call(X, n).tolist()
    except (ArithmeticError, ValueError, TypeError) as error:
        return type(error), str(error)


def test_numbers_leave_the_graph_as_python_has_them():
    call = optimize(lambda gm, inputs: gm.forward)(lambda x, n: (x + 1, n / 3, f"{n / 7:.20f}", [n * 0.1], {n / 2 > 1: n}))
    for n in NUMBERS:
        found = call(X, n)
        assert found[1:] == (n / 3, f"{n / 7:.20f}", [n * 0.1], {n / 2 > 1: n}) and type(found[1]) is float


@pytest.mark.parametrize("length", [5, 8, 9])
def test_sizes_of_tensors(length):
    x = torch.randn(3, length)
    call = optimize(lambda gm, inputs: gm.forward, dynamic=True, fullgraph=True)(lambda x: x.sum(1) / x.shape[1] ** 0.5)
    torch.testing.assert_close(call(x), x.sum(1) / length**0.5, rtol=0, atol=0)
