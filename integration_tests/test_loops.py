"""torch.while_loop is one operator of the graph, scan and map of known lengths are steps of it."""

import pytest
import torch
import tracework
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.map import map as map_steps
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from training import BACKENDS, same


def doubled(count, x, w):
    y = x + 1
    return while_loop(lambda i, a: (i < count) & (a.sum() < 1000), lambda i, a: (i + 1, a * 2 + w @ y), (torch.tensor(0), y))


def plainly_doubled(count, x, w):
    y = x + 1
    i, a = torch.tensor(0), y
    while i < count and a.sum() < 1000:
        i, a = i + 1, a * 2 + w @ y
    return i, a


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_runs_as_long_as_its_data_asks(backend):
    compiled = tracework.compile(doubled, backend=backend, fullgraph=True)
    w = torch.eye(3) * 0.5
    for count, x in ((3, torch.ones(3)), (0, torch.ones(3)), (100, torch.ones(3)), (5, -torch.ones(3))):
        given = torch.tensor(count), x.clone(), w.clone()
        found = compiled(*given)
        same(found, plainly_doubled(*given))
        found[1].add_(1)
        same(list(given), [torch.tensor(count), x, w])


def test_a_loop_that_changes_what_it_carries_is_refused():
    def grows(x):
        return while_loop(lambda a: a.sum() < 5, lambda a: (torch.cat((a, a)),), (x,))

    with pytest.raises(Exception, match=r"torch\.while_loop"):
        tracework.compile(grows, backend="eager", fullgraph=True)(torch.ones(2))


def summed(x, w):
    carry, rows = scan(lambda c, a: (c * w + a, {"sum": c + a, "last": a.sin()}), w * 2, x)
    return carry, rows["sum"], rows["last"]


def summed_backwards(x, w):
    return scan(lambda c, a: (c + a.sum(), c * a), w.sum(), x, dim=1, reverse=True)


def mapped(x, w):
    return map_steps(lambda pair, scale: (pair[0] * scale, pair[1].sum()), (x, x.cos()), w)


def plainly_summed(x, w):
    carry, sums, lasts = w * 2, [], []
    for a in x:
        sums.append(carry + a)
        carry, last = carry * w + a, a.sin()
        lasts.append(last)
    return carry, torch.stack(sums), torch.stack(lasts)


def plainly_summed_backwards(x, w):
    carry, rows = w.sum(), []
    for a in reversed(x.unbind(1)):
        rows.append(carry * a)
        carry = carry + a.sum()
    return carry, torch.stack(rows[::-1], 1)


def plainly_mapped(x, w):
    return torch.stack([a * w for a in x]), torch.stack([a.cos().sum() for a in x])


PAIRS = ((summed, plainly_summed), (summed_backwards, plainly_summed_backwards), (mapped, plainly_mapped))


@pytest.mark.parametrize(("fn", "plain"), PAIRS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_with_gradients(fn, plain, backend):
    torch.manual_seed(0)
    inputs = [torch.randn(5, 3, requires_grad=True), torch.randn(3, requires_grad=True)]
    found = tracework.compile(fn, backend=backend, fullgraph=True)(*inputs)
    expected = plain(*inputs)
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad(sum(t.sum() for t in result), inputs) for result in (found, expected))
    torch.testing.assert_close(*gradients)


def scanned(gates, values):
    """As models with a state space write it for a GPU: associative_scan(..., combine_mode="pointwise") calls the operator."""

    def combine(gate, value, next_gate, next_value):
        return gate * next_gate, next_gate * value + next_value

    return associative_scan_op(combine, [gates, values], ())[1]


def plainly_scanned(gates, values):
    found, state = [], torch.zeros_like(values[0])
    for gate, value in zip(gates, values):
        state = gate * state + value
        found.append(state)
    return torch.stack(found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_associative_scan_is_part_of_the_graph(backend):
    compiled = tracework.compile(scanned, backend=backend, fullgraph=True)
    for steps in (7, 1, 2, 12):
        gates, values = torch.rand(steps, 3, dtype=torch.float64), torch.randn(steps, 3, dtype=torch.float64)
        torch.testing.assert_close(compiled(gates, values), plainly_scanned(gates, values))
