"""Expressions that are written twice are computed once, forward and backward; what may differ, or be written to, is not."""

import pytest
import torch
import tracework_aotautograd as aot
from torch.nn import functional as F
from tracework_aotautograd.partition.equal import merge_equal

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default)


def three_and_another(x, w):
    other = x @ w.mT
    return ((x @ w).sin() * other + (x @ w).cos() * other.exp() + (x @ w).tanh(),)


def operand_written(x, w):
    y, v = x.detach().clone(), w.detach()
    first = y @ v
    y.mul_(2)
    return (x * first + w * (y @ v),)


def result_written(x, w):
    first = x @ w
    first.add_(1)
    return (first.sin() + (x @ w).cos(),)


class Clamped(torch.autograd.Function):
    """A gradient that is not linear."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-0.1, 0.1)


PROGRAMS = {
    "twice": (lambda x, w: ((x @ w).sin() + (x @ w).cos(),), 1, 2),
    "three times beside another": (three_and_another, 2, 4),
    "with a bias": (lambda x, w: (F.linear(x, w, w[0]).sin() + F.linear(x, w, w[0]).cos(),), 1, 2),
    "of batches": (lambda x, w: ((x[None] @ w[None]).sin() + (x[None] @ w[None]).cos(),), 1, 2),
    "in blocks": (lambda x, w: ((x.view(2, 3, 6) @ w).sin() + (x.view(2, 3, 6) @ w).cos(),), 1, 2),
    "detached": (lambda x, w: ((x @ w) * (x @ w).detach().sin(),), 1, 2),
    "clamped": (lambda x, w: (Clamped.apply(x @ w) * Clamped.apply(x @ w).sin(),), 1, 2),
    "chained": (lambda x, w: (((x @ w) @ w).sin() + ((x @ w) @ w).cos(),), 2, 4),
    "result written to": (result_written, 1, 2),
    "operand written to": (operand_written, 2, 0),
    "other weights": (lambda x, w: ((x @ w) + (x @ (w * 2)),), 2, 3),
    "other operands": (lambda x, w: (((x * 2) @ w).sin() + (x.sin() @ w),), 2, 4),
    "shown, both": (lambda x, w: (x @ w, x @ w), 2, 4),
    "shown by a view": (lambda x, w: ((x @ w).mT, (x @ w).exp()), 2, 4),
}
"""Name -> a program, how many products its forward has, and its backward."""


def products(graph):
    return sum(node.target in PRODUCTS for node in graph.graph.nodes)


def arguments():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(6, 6, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_eagers(name, check):
    program, forward, backward = PROGRAMS[name]
    found = check(program, *arguments(), second=name != "clamped", gradients_first=True).programs[0]
    assert products(found.forward) == forward
    shared = name != "shown, both" and name != "shown by a view"
    assert sum(products(each.graph) for each in found.backwards) == (backward if shared else 4)


def test_the_order_of_sums_is_eagers_unless_asked(check):
    program, forward, _ = PROGRAMS["twice"]
    found = check(program, *arguments()).programs[0]
    assert products(found.forward) == forward and products(found.backwards[0].graph) == 4


def test_biases_are_added_up_with_the_products(check):
    x, w = arguments()
    found = check(lambda x, w, b: (F.linear(x, w, b).sin() + F.linear(x, w, b).cos(),), x, w, w.detach()[0].requires_grad_(),
                  gradients_first=True).programs[0]  # fmt: skip
    targets = [node.target for node in found.backwards[0].graph.graph.nodes]
    assert targets.count(aten.sum.dim_IntList) == 1 and targets.count(aten.add.Tensor) == 1


def test_random_numbers_are_drawn_as_often_as_in_eager(check):
    found = check(lambda x, w: (F.dropout(x @ w, 0.5) + F.dropout(x @ w, 0.5),), *arguments(), gradients_first=True).programs[0]
    targets = [node.target for node in found.forward.graph.nodes]
    assert targets.count(aten.bernoulli.p) + targets.count(aten.native_dropout.default) == 2 and products(found.forward) == 1


def pairs(*calls, **marks):
    """A graph of calls of x, each with a sine of its own that is shown, and how many calls are left of it."""
    graph, mode = torch.fx.Graph(), aot.trace_joint(torch.fx.symbolic_trace(lambda x: x * 2), [torch.ones(2, requires_grad=True)])
    x = graph.placeholder("x")
    x.meta["val"] = next(iter(mode.graph.graph.nodes)).meta["val"]
    made = []
    for number, (target, *args) in enumerate(calls):
        node = graph.call_function(target, (x, *args))
        node.meta.update({name: values[number] for name, values in marks.items()}, val=target(x.meta["val"], *args))
        made.append(graph.call_function(aten.sin.default, (node,)))
        made[-1].meta["val"] = node.meta["val"]
    graph.output(tuple(made))
    merge_equal(graph)
    return sum(node.target is not aten.sin.default for node in graph.nodes) - 2


ADD = aten.add.Tensor
LEFT = [
    ([(ADD, 1), (ADD, 1)], {}, 1),
    ([(ADD, 1), (ADD, 1.0)], {}, 2),
    ([(ADD, 1), (ADD, True)], {}, 2),
    ([(ADD, 0.0), (ADD, -0.0)], {}, 2),
    ([(ADD, 1), (aten.sub.Tensor, 1)], {}, 2),
    ([(aten.bernoulli.p, 0.5), (aten.bernoulli.p, 0.5)], {}, 2),
    ([(aten.empty_like.default,), (aten.empty_like.default,)], {}, 2),
    ([(ADD, 1), (ADD, 1)], {"recompute_region": (0, 0), "recompute": ("must", "must")}, 1),
    ([(ADD, 1), (ADD, 1)], {"recompute_region": (0, 1), "recompute": ("must", "must")}, 2),
    ([(ADD, 1), (ADD, 1)], {"recompute_region": (0, None)}, 2),
]


@pytest.mark.parametrize(("calls", "marks", "left"), LEFT)
def test_equal_calls_are_one(calls, marks, left):
    assert pairs(*calls, **marks) == left
