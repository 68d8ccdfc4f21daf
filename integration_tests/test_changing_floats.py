"""Floats that change from call to call become inputs where tensors compute with them, and are fixed where their value is needed."""

import math

import pytest
import torch
import tracework
from training import BACKENDS, same


class Counting:
    """A backend that runs the graph as it is and counts graphs."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


def arithmetic(x, s):
    y = x * s + (2 * s - 1) / 4
    y = s - y
    y.mul_(-s).add_(x, alpha=s).sub_(s)
    return y / 3, s * 2.5, torch.addcmul(x, x, x, value=s)


def other_dtypes(x, s):
    return x.double() * s, x.to(torch.int32) * s, x.sum() * s, (x > s), x.half() + s, x[0, 0] + s, x.long().sum() + s


def lists(x, s):
    xs = [x, x + 1]
    torch._foreach_mul_(xs, s)
    return torch._foreach_add(xs, [x, x], alpha=s * 2)


@pytest.mark.parametrize("fn", [arithmetic, other_dtypes, lists], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_values(fn, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    for s in (0.5, 0.25, -3.0, 1e-3):
        x = torch.arange(6.0).reshape(2, 3)
        same(list(compiled(x.clone(), s)), list(fn(x.clone(), s)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_graphs_for_all_values(backend):
    counting = Counting()
    x = torch.randn(3, 4, requires_grad=True)
    for chosen in (counting, backend):
        compiled = tracework.compile(arithmetic, backend=chosen, fullgraph=True)
        for step in range(1, 12):
            same(list(compiled(x, 1.0 / step)), list(arithmetic(x, 1.0 / step)))
    assert counting.graphs == 2


def test_the_value_where_it_is_needed():
    def fn(x, s):
        if s > 0.5:
            x = x + 1
        return torch.full_like(x, s), math.floor(s), f"{s}", {s: 1}

    compiled = tracework.compile(fn, backend="eager", fullgraph=True, dynamic=None)
    for s in (0.25, 0.75, 1.5, 0.25):
        found, expected = compiled(torch.ones(2), s), fn(torch.ones(2), s)
        same(found[0], expected[0])
        assert found[1:] == expected[1:]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("foreach", [False, True])
def test_learning_rates(make, foreach):
    """Any number of learning rates takes two graphs: the first call's, and one with the learning rate as an input."""
    counting, results = Counting(), []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = make(model.parameters(), lr=1.0, weight_decay=0.1, foreach=foreach)
        call = tracework.compile(lambda o=optimizer: o.step(), backend=counting, fullgraph=True) if compiled else optimizer.step
        for step in range(1000):
            optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
            if step < 3:
                optimizer.zero_grad()
                model(torch.ones(3, 4)).square().sum().backward()
            call()
        results.append([p.detach() for p in model.parameters()])
    same(*results)
    assert counting.graphs <= 2


def from_ints(x, n):
    scale = 1 / math.sqrt(n)
    y = x * scale + (n / 3) * x.sum()
    return (
        y[:, : math.ceil(n / 4)],
        torch.arange(3) * (n / 2),
        x[:, [0, n % 2]],
        torch.tensor(n / 7),
        y.mean() / x.shape[1] ** 0.5,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_computed_from_ints(backend):
    """All ints share one graph; the numbers are Python's."""
    counting = Counting()
    for chosen in (counting, backend):
        compiled = tracework.compile(from_ints, backend=chosen, fullgraph=True)
        for n in range(2, 9):
            x = torch.randn(3, 12 + n, requires_grad=True, generator=torch.Generator().manual_seed(n))
            same(list(compiled(x, n)), list(from_ints(x, n)))
    assert counting.graphs == 2
