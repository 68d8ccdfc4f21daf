"""cond, while_loop, map and scan in the graph: values, nested results, gradients of what they read, and what is refused."""

import pytest
import torch
import tracework
from torch._higher_order_ops.map import map as map_steps
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from tracework_capture.errors import Unsupported

BACKENDS = ["eager", "aot_eager", "inductor"]
WEIGHT = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
LINEAR = torch.nn.Linear(3, 3)


def chosen(x):
    """Results nested in one way, a parameter and a module that only one arm reads."""
    return torch.cond(
        x.sum() > 0,
        lambda t: {"y": t.sin() * WEIGHT, "z": (t.argmax(), [t + 1])},
        lambda t: {"y": LINEAR(t), "z": (t.argmin(), [t * 3])},
        (x,),
    )


def plainly_chosen(x):
    if x.sum() > 0:
        return {"y": x.sin() * WEIGHT, "z": (x.argmax(), [x + 1])}
    return {"y": LINEAR(x), "z": (x.argmin(), [x * 3])}


def flat(result):
    return torch.utils._pytree.tree_leaves(result)


def agree(call, plain, x):
    """Values and gradients of the argument and of the parameters."""
    leaves = []
    for function in (call, plain):
        given = x.clone().requires_grad_()
        results = flat(function(given))
        total = sum((r * (i + 2)).sum() for i, r in enumerate(results) if r.requires_grad)
        reached = [given, WEIGHT, *LINEAR.parameters()]
        leaves.append([*results, *torch.autograd.grad(total, reached, materialize_grads=True)])
    for mine, theirs in zip(*leaves, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_cond(backend):
    call = tracework.compile(chosen, backend=backend, fullgraph=True)
    x = torch.tensor([1.0, 3.0, 2.0])
    for given in (x, -x):
        agree(call, plainly_chosen, given)
        with torch.no_grad():
            for mine, theirs in zip(flat(call(given)), flat(plainly_chosen(given)), strict=True):
                torch.testing.assert_close(mine, theirs)


def doubled(x):
    carried = ({"count": torch.zeros((), dtype=torch.int64), "value": x},)
    (found,) = while_loop(
        lambda c: c["value"].abs().sum() < 100,
        lambda c: ({"count": c["count"] + 1, "value": c["value"] * WEIGHT.abs() * 2},),
        carried,
    )
    return found["value"].cos(), found["count"]


def plainly_doubled(x):
    count = torch.zeros((), dtype=torch.int64)
    while x.abs().sum() < 100:
        count, x = count + 1, x * WEIGHT.abs() * 2
    return x.cos(), count


@pytest.mark.parametrize("backend", BACKENDS)
def test_while_loop(backend):
    call = tracework.compile(doubled, backend=backend, fullgraph=True)
    for scale in (1.0, 50.0, 200.0):
        agree(call, plainly_doubled, torch.tensor([1.0, 3.0, 2.0]) * scale)


def step(carried, x):
    return {"s": carried["s"] * 0.9 + x * WEIGHT}, (carried["s"].sin(), x.sum())


def scanned(backwards, dim):
    def run(xs):
        carried, results = scan(step, {"s": torch.ones(3)}, xs, dim=dim, reverse=backwards)
        return carried, results

    return run


def plainly_scanned(backwards, dim):
    def run(xs):
        carried, rows = {"s": torch.ones(3)}, []
        steps = xs.unbind(dim)
        for x in reversed(steps) if backwards else steps:
            carried, row = step(carried, x)
            rows.append(row)
        rows = rows[::-1] if backwards else rows
        firsts, seconds = zip(*rows)
        return carried, (torch.stack(firsts).movedim(0, dim), torch.stack(seconds))

    return run


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("length", "backwards", "dim"), [(5, False, 0), (100, False, 0), (100, True, 1)])
def test_scan(backend, length, backwards, dim):
    call = tracework.compile(scanned(backwards, dim), backend=backend, fullgraph=True)
    agree(call, plainly_scanned(backwards, dim), torch.randn(length, 3).movedim(0, dim).contiguous())


@pytest.mark.parametrize("length", [5, 100])
def test_map(length):
    call = tracework.compile(
        lambda xs: map_steps(lambda x, scale: [x.sin() * scale, x.sum()], xs, WEIGHT), backend="aot_eager", fullgraph=True
    )
    agree(call, lambda xs: [xs.sin() * WEIGHT, xs.sum(1)], torch.randn(length, 3))


def random_arm(x):
    return torch.cond(x.sum() > 0, lambda t: torch.dropout(t * WEIGHT, 0.5, True), lambda t: t * 2, (x,))


def different_arms(x):
    return torch.cond(x.sum() > 0, lambda t: (t, t), lambda t: [t, t], (x,))


def growing_loop(x):
    return while_loop(lambda t: t.sum() < 9, lambda t: (torch.cat([t, t]),), (x,))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (random_arm, "would draw again"),
        (different_arms, "nested in different ways"),
        (growing_loop, "other kinds of tensors than it takes"),
        (lambda x: map_steps(lambda t: t + 1, x[:0]), "over no steps"),
    ],
)
def test_what_is_refused(function, words):
    with pytest.raises(Unsupported, match=words):
        tracework.compile(function, backend="eager", fullgraph=True)(torch.ones(3))


def test_random_numbers_where_no_gradient_is_asked_for():
    call = tracework.compile(random_arm, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.manual_seed(0)
        found = call(torch.ones(3))
        torch.manual_seed(0)
        torch.testing.assert_close(found, torch.dropout(WEIGHT * 1, 0.5, True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_second_and_third_derivatives(backend):
    call = tracework.compile(lambda x: chosen(x)["y"].pow(2).sum(), backend=backend, fullgraph=True)
    found = []
    for function in (call, lambda x: plainly_chosen(x)["y"].pow(2).sum()):
        x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
        (first,) = torch.autograd.grad(function(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
        found.append((first, second, torch.autograd.grad(second.sum(), [x, WEIGHT])))
    torch.testing.assert_close(*found)
