"""Choosing what to keep within a number of bytes: exact for small graphs, near it for large ones."""

from itertools import combinations

import pytest
import torch
from torch import fx
from tracework_aotautograd.partition import budget
from tracework_aotautograd.partition.budget import Problem
from tracework_aotautograd.partition.cost import kept_bytes


def chain(widths):
    """x @ w, relu and reduction for each width, as a graph whose values have fakes without memory; all but x may be computed again."""
    graph = fx.Graph()

    def made(target, *args):
        node = graph.call_function(target, args)
        node.meta["val"] = target(*[a.meta["val"] if isinstance(a, fx.Node) else a for a in args])
        return node

    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(8, 4, device="meta")
    value, values = x, [x]
    for number, width in enumerate(widths):
        weight = graph.placeholder(f"w{number}")
        weight.meta["val"] = torch.empty(value.meta["val"].shape[1], width, device="meta")
        product = made(torch.ops.aten.mm.default, value, weight)
        value = made(torch.ops.aten.relu.default, product)
        values += [weight, product, value]
    return values


def problem(widths):
    values = chain(widths)
    calls = [n for n in values if n.op == "call_function"]
    prices = {n: 2.0 * kept_bytes(n) if n.op == "call_function" else 1.0 for n in values}
    sizes = {n: kept_bytes(n) if n.op == "call_function" else 0 for n in values}
    return Problem(values, frozenset(values[1:]), frozenset(calls), frozenset(), prices, sizes), calls


def best_by_trying(given, calls, limit):
    inputs = [n for n in given.values if n.op == "placeholder"]
    tried = (given.choice([*inputs, *kept]) for count in range(len(calls) + 1) for kept in combinations(calls, count))
    return min(given._price(choice) for choice in tried if choice.bytes <= limit)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.35, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("widths", [[16, 4, 32], [64, 2, 8, 8]])
def test_small_graphs_are_solved_exactly(widths, part):
    given, calls = problem(widths)
    limit = part * sum(map(kept_bytes, calls))
    found = given.solve(limit)
    assert found.bytes <= limit
    assert given._price(found) == pytest.approx(best_by_trying(given, calls, limit))


def test_large_graphs_come_near_it(monkeypatch):
    given, calls = problem([16, 4, 32, 8, 64])
    limits = [part / 10 * sum(map(kept_bytes, calls)) for part in range(11)]
    exact = [given._price(given.solve(limit)) for limit in limits]
    monkeypatch.setattr(budget, "FEW_VALUES", 0)
    near = [given._price(given.solve(limit)) for limit in limits]
    assert all(a <= b + 1e-6 for a, b in zip(exact, near, strict=True)) and sum(near) <= 1.2 * sum(exact)


def test_what_cannot_be_computed_again_is_kept():
    given, calls = problem([16, 4])
    fixed = Problem(given.values, given.readers, frozenset(calls[1:]), frozenset(), given.prices, given.sizes)
    assert calls[0] in fixed.solve(0).kept
