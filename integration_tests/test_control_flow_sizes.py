"""cond, while_loop, scan, map and associative_scan with sizes and numbers that change from call to call: two graphs at most, values and
gradients of the same programs written out in Python."""

import functools
import types

import pytest
import torch
import tracework
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_steps
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._pytree import tree_leaves, tree_map


def cond(condition, true_fn, false_fn, operands=()):
    return (true_fn if condition else false_fn)(*operands)


def loop(condition, body, carried):
    while condition(*carried):
        carried = body(*carried)
    return carried


def steps_along(xs, dim):
    return [tree_map(lambda x, at=at: x.select(dim, at), xs) for at in range(tree_leaves(xs)[0].shape[dim])]


def stacked(rows, dim):
    return tree_map(lambda *row: torch.stack(row).movedim(0, dim if row[0].ndim >= dim else 0), *rows)


def steps(function, carried, xs, dim=0, reverse=False):
    rows, order = [], steps_along(xs, dim)
    for x in reversed(order) if reverse else order:
        carried, row = function(carried, x)
        rows.append(row)
    return carried, stacked(rows[::-1] if reverse else rows, dim)


def each(function, xs, *others):
    return stacked([function(x, *others) for x in steps_along(xs, 0)], 0)


def combined(function, xs, dim, reverse=False, combine_mode="generic"):
    rows = steps_along(xs, dim)
    rows = rows[::-1] if reverse else rows
    for at in range(1, len(rows)):
        rows[at] = function(rows[at - 1], rows[at])
    return stacked(rows[::-1] if reverse else rows, dim)


TORCH = types.SimpleNamespace(cond=torch.cond, loop=while_loop, steps=scan, each=map_steps, combined=associative_scan)
WRITTEN_OUT = types.SimpleNamespace(cond=cond, loop=loop, steps=steps, each=each, combined=combined)
WEIGHT = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64))
LINEAR = torch.nn.Linear(3, 3).double()
REACHED = [WEIGHT, *LINEAR.parameters()]


def arms(ops, x, n):
    return ops.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos() * 2, (x,))


def arms_over_tensors_and_modules(ops, x, n):
    y = x * 2
    return ops.cond(x.sum() > 0, lambda t: t.sin() + y, lambda t: t * WEIGHT + LINEAR(y), (x,))


def arms_over_sizes_and_numbers(ops, x, n):
    rows = x.shape[0]
    return ops.cond(x.sum() > 0, lambda t: t.sin() * rows - n, lambda t: t.cos() + n / rows, (x,))


def arms_over_floats(ops, x, n):
    scale = n * 0.25
    return ops.cond(x.sum() > 0, lambda t: t.sin() * scale, lambda t: t.cos() - scale, (x,))


def arms_of_other_sizes_than_x(ops, x, n):
    rows = x.shape[0]
    return ops.cond(x.sum() > 0, lambda: x.reshape(3, rows).sum(0), lambda: x.new_ones(rows) * x.sum())


def arms_in_arms(ops, x, n):
    def inner(t):
        return ops.cond(t.mean() > 0.4, lambda u: u.exp(), lambda u: u * WEIGHT, (t,))

    a, b = ops.cond(x.sum() > 0, lambda t: (inner(t), t.sum(1)), lambda t: (t.cos(), t.mean(1)), (x,))
    return a.sum(1) + b, a


def rounds(ops, x, n):
    return ops.loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 1.5), (torch.tensor(0), x))


def rounds_over_tensors_and_modules(ops, x, n):
    y = x + 1
    return ops.loop(lambda i, a: a.abs().sum() < 100, lambda i, a: (i + 1, a * 2 + y * WEIGHT + LINEAR(y)), (torch.tensor(0), x))


def rounds_over_sizes(ops, x, n):
    rows = x.shape[0]
    return ops.loop(lambda i, a: i < rows, lambda i, a: (i + n, a + rows * 0.5), (torch.tensor(0), x))


def rounds_with_parts(ops, x, n):
    return ops.loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * 2, b + a[0]), (torch.tensor(0), x, x.new_zeros(3)))


def rounds_of_arms(ops, x, n):
    def body(i, a):
        return i + 1, ops.cond(a.sum() > 3, lambda t: t * 0.5, lambda t: t * 3 + 1, (a,))

    return ops.loop(lambda i, a: i < 4, body, (torch.tensor(0), x))


def rounds_of_rounds(ops, x, n):
    def body(i, a):
        _, a = ops.loop(lambda j, b: j < 2, lambda j, b: (j + 1, b + WEIGHT), (torch.tensor(0), a))
        return i + 1, a * 0.5

    return ops.loop(lambda i, a: i < 4, body, (torch.tensor(0), x))


def scanned(ops, x, n):
    def step(carried, item):
        results = item["v"] * carried["s"] + WEIGHT, item["u"].sum()
        return {"s": carried["s"] * 0.5 + item["u"] * n}, results

    return ops.steps(step, {"s": x.new_zeros(3)}, {"u": x, "v": x * 2}, reverse=True)


def scanned_along_columns(ops, x, n):
    return ops.steps(lambda c, a: (c * 0.5 + a, (c * a, a.sum())), x[:, 0] * 2, x, dim=1)


def scanned_by_a_module(ops, x, n):
    return ops.steps(lambda c, a: (LINEAR(c).tanh() + a, c.sin()), x.new_zeros(3), x)


def mapped(ops, x, n):
    return ops.each(lambda pair, y: (LINEAR(pair[0]) * y.sum(), pair[1].sum() * n), (x, x.cos()), x.sin())


def mapped_columns(ops, x, n):
    return ops.each(lambda a: a * 2 + a.shape[0], x.t().contiguous())


def added_up(ops, x, n):
    return ops.combined(lambda a, b: a + b, x, 1, combine_mode="generic")


PROGRAMS = [
    arms, arms_over_tensors_and_modules, arms_over_sizes_and_numbers, arms_over_floats, arms_of_other_sizes_than_x, arms_in_arms,
    rounds, rounds_over_tensors_and_modules, rounds_over_sizes, rounds_with_parts, rounds_of_arms, rounds_of_rounds,
    scanned, scanned_along_columns, scanned_by_a_module, mapped, mapped_columns, added_up,
]  # fmt: skip


def inputs(follow):
    torch.manual_seed(0)
    for rows, n in ((4, 2), (6, 3), (7, 5), (70, 4), (9, 2), (4, 3)):
        x = torch.randn(rows, 3, dtype=torch.float64) / rows
        for sign in (1, -1):
            yield (x * sign).requires_grad_(follow), n


def results(call, x, n):
    """Values, and gradients of x and of what the functions reach."""
    found = tree_leaves(call(x, n))
    if not x.requires_grad:
        return found
    total = sum((r * (i + 2)).sum() for i, r in enumerate(found) if r.requires_grad)
    return [*found, *torch.autograd.grad(total, [x, *REACHED], materialize_grads=True)]


def counting(graphs):
    def backend(module, examples):
        graphs.append(module)
        return module.forward

    return backend


@pytest.mark.parametrize("follow", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_two_graphs_for_all_sizes(program, follow):
    graphs = []
    call = tracework.compile(functools.partial(program, TORCH), backend=counting(graphs), fullgraph=True)
    for x, n in inputs(follow):
        with torch.set_grad_enabled(follow):
            torch.testing.assert_close(results(call, x, n), results(functools.partial(program, WRITTEN_OUT), x, n))
    assert len(graphs) <= 2


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_one_graph_for_marked_sizes(program):
    graphs = []
    call = tracework.compile(functools.partial(program, TORCH), backend=counting(graphs), fullgraph=True)
    for x, _ in inputs(False):
        tracework.compiler.mark_dynamic(x, 0)
        torch.testing.assert_close(results(call, x, 2), results(functools.partial(program, WRITTEN_OUT), x, 2))
    assert len(graphs) == 1


COMPILED = [arms_over_sizes_and_numbers, arms_over_tensors_and_modules, rounds_of_arms, rounds_over_sizes, scanned, mapped]


@pytest.mark.parametrize("program", COMPILED, ids=lambda p: p.__name__)
def test_compiled_with_gradients(program):
    call = tracework.compile(functools.partial(program, TORCH), fullgraph=True, dynamic=True)
    for x, n in inputs(True):
        torch.testing.assert_close(results(call, x, n), results(functools.partial(program, WRITTEN_OUT), x, n))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_second_derivatives(backend):
    call = tracework.compile(functools.partial(rounds_of_arms, TORCH), backend=backend, fullgraph=True, dynamic=True)
    for rows in (4, 6):
        x, found = torch.rand(rows, 3, dtype=torch.float64, requires_grad=True), []
        for function in (call, functools.partial(rounds_of_arms, WRITTEN_OUT)):
            (first,) = torch.autograd.grad(function(x, 2)[1].pow(3).sum(), x, create_graph=True)
            found.append((first, *torch.autograd.grad(first.pow(2).sum(), x)))
        torch.testing.assert_close(*found)
