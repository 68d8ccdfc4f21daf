"""A backward in stages gives eager's gradients, in order, those of a stage before the next one is computed."""

from functools import partial

import pytest
import torch
import tracework_aotautograd as aot
from torch import nn

F = torch.nn.functional
SHAPES = {"x": (2, 3), "w": (3, 3), "v": (3, 3), "b": (3,)}


def layers(x, w, v, b):
    return (F.layer_norm((x @ w).relu(), (3,), b) @ v,)


def tied(x, w, v, b):
    return ((x @ w + b).sin() @ v @ w.t(),)


def passed_on(x, w, v, b):
    y = x + b
    return (y + (y @ w).cos() @ v,)


def sums(x, w, v, b):
    """Gradients that are the tangent itself, and each other."""
    return ((x @ w.exp()).sin() + x + w[:2] + v[:2] + b,)


def two(x, w, v, b):
    y = (x @ w).tanh()
    return y @ v, (y * b).sum()


def several_views(x, w, v, b):
    p, q = (x @ w.reshape(3, 3) @ v).chunk(2)
    return (p * q * b,)


def written(x, w, v, b):
    y = (x.add_(1) @ w).sigmoid()
    return ((y @ v).mul_(b),)


PROGRAMS = [layers, tied, passed_on, sums, two, several_views, written]


class Run:
    def __init__(self, graph, fn, buckets=(1, 1)):
        torch.manual_seed(0)
        values = [torch.randn(shape) for shape in SHAPES.values()]
        self.sets = [
            [values[0].clone().requires_grad_(fn is not written), *(nn.Parameter(v.clone()) for v in values[1:])]
            for _ in range(2)
        ]
        self.order, self.programs, self.made, stages = [], [], set(), 0

        def compiler(gm, spec):
            nonlocal stages
            name, stages = f"stage {stages}", stages + (spec.role == "backward")

            def computed(inputs):
                self.order.append(name)
                results = gm(*inputs)
                self.made |= {result.data_ptr() for result in results}
                return results

            return computed

        made = partial(graph, fn, 4)
        options = aot.AotOptions(fallback=False, buckets=buckets)
        self.call = aot.aot_compile(
            made(), self.sets[1], forward_compiler=lambda gm, spec: lambda inputs: gm(*inputs), backward_compiler=compiler, options=options,
            observe=lambda stage, product: self.programs.append(product),
        )  # fmt: skip
        self.fns = fn, self.call


@pytest.fixture
def run(graph):
    return partial(Run, graph)


def loss_of(results):
    return sum((r * torch.arange(1.0, r.numel() + 1).reshape(r.shape)).sin().sum() for r in results)


@pytest.mark.parametrize("fn", PROGRAMS)
def test_gradients(fn, run):
    made = run(fn)
    wanted = [[x for x in inputs if x.requires_grad] for inputs in made.sets]
    losses = [loss_of(call(*inputs)) for call, inputs in zip(made.fns, made.sets, strict=True)]
    assert len(made.programs[0].backwards[0].stages) > 1
    for retain in (True, False):  # the same twice, added up
        for loss in losses:
            loss.backward(retain_graph=retain)
        for a, b in zip(*wanted, strict=True):
            torch.testing.assert_close(b.grad, a.grad)
            b.grad.add_(1)  # nobody else has its memory
            a.grad.add_(1)
    assert all(inputs[1].equal(made.sets[0][1]) for inputs in made.sets)
    with pytest.raises(RuntimeError, match="second time"):
        losses[1].backward()


@pytest.mark.parametrize("fn", [layers, tied, sums, two])
def test_gradients_of_some_inputs_of_gradients_and_of_one_result(fn, run):
    made = run(fn)
    found = []
    for call, inputs in zip(made.fns, made.sets, strict=True):
        seconds = []
        for slot in range(4):
            (first,) = torch.autograd.grad(loss_of(call(*inputs)), inputs[slot], create_graph=True)
            seconds += [first, *torch.autograd.grad(first.sum(), inputs, allow_unused=True)]
        found.append([*seconds, *torch.autograd.grad(call(*inputs)[-1].sum(), inputs, allow_unused=True)])
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b, a)


def test_parameters_of_a_stage_have_their_gradients_before_the_next_one_is_computed(run):
    made = run(layers)
    for name, p in zip(SHAPES, made.sets[1], strict=True):
        p.register_post_accumulate_grad_hook(lambda p, name=name: made.order.append(name))
    loss_of(made.call(*made.sets[1])).backward()
    stages = [n for n, what in enumerate(made.order) if what.startswith("stage")]
    assert len(stages) == 3 and stages == sorted(stages)
    assert made.order[stages[0] + 1 : stages[1]] == ["v"] and made.order[stages[1] + 1 : stages[2]] == ["b"]
    assert {*made.order[stages[2] + 1 :]} == {"w", "x"}


def test_gradients_that_nobody_else_needs_are_not_copied(run):
    made = run(layers)
    loss_of(made.call(*made.sets[1])).backward()
    _, w, v, _ = made.sets[1]
    assert {w.grad.data_ptr(), v.grad.data_ptr()} <= made.made


def test_who_has_a_gradient_may_write_to_its_parameter(run):
    """As an optimizer that runs in the backward does."""

    def doubled(p):
        p.data.mul_(2)

    made = run(layers)
    for inputs in made.sets:
        for p in inputs[1:]:
            p.register_post_accumulate_grad_hook(doubled)
    for call, inputs in zip(made.fns, made.sets, strict=True):
        loss_of(call(*inputs)).backward()
    for a, b in zip(*made.sets, strict=True):
        torch.testing.assert_close(b.grad, a.grad)


def test_other_data(run):
    made = run(tied)
    for call, inputs in zip(made.fns, made.sets, strict=True):
        loss = loss_of(call(*inputs))
        inputs[1].data = inputs[1].data * 2
        loss.backward()
    for a, b in zip(*made.sets, strict=True):
        torch.testing.assert_close(b.grad, a.grad)


def test_several_gradients_at_once(run):
    made = run(layers)
    found = []
    for call, inputs in zip(made.fns, made.sets, strict=True):
        (y,) = call(*inputs)
        found.append(torch.autograd.grad(y, inputs, torch.eye(6).reshape(6, 2, 3), is_grads_batched=True))
    assert all(map(torch.allclose, *found))
