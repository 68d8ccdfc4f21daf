"""Leaves that a compiled function makes and gives back: gradients with respect to them are eager's, whatever they are views of."""

import pytest
import torch
import tracework
from training import BACKENDS


def of_a_part(x, y):
    leaf = y.narrow(0, 0, 1).requires_grad_()
    return leaf, (leaf * 2).clone(), x * 2


def detached(x, y):
    leaf = x.detach().requires_grad_()
    return leaf, leaf * 3


def detached_and_used_beside(x, y):
    leaf = x.detach().requires_grad_()
    return leaf, leaf * 3 + x * 0


def seen_in_another_shape(x, y):
    leaf = y.view(-1).requires_grad_()
    return leaf, (leaf * 3).sum() + x.sum()


def made_under_no_grad(x, y):
    with torch.no_grad():
        leaf = x[1:]
    leaf.requires_grad_()
    return leaf, leaf * 2


def in_steps(x, y):
    fast = x.detach()[1:].requires_grad_()
    (step,) = torch.autograd.grad((fast * fast).sum(), fast)
    fast = (fast - 0.1 * step).detach().requires_grad_()
    return fast, fast * 2 + x[1:]


def gone(x, y):
    leaf = x.detach().requires_grad_()
    return leaf * 2 + x, y


PROGRAMS = [of_a_part, detached, detached_and_used_beside, seen_in_another_shape, made_under_no_grad, in_steps, gone]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_their_gradients(fn, backend):
    def gradients(run):
        x, y = (torch.arange(15.0).view(5, 3) / 8).requires_grad_(), torch.ones(5, 3)
        found = run(x, y)
        leaves = [x, *(t for t in found if t.requires_grad and t.is_leaf)]
        total = sum((t * (number + 1)).sum() for number, t in enumerate(found))
        facts = [(t.requires_grad, t.is_leaf, t._is_view()) for t in found]
        return [*found, *torch.autograd.grad(total, leaves, allow_unused=True)], facts

    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        (expected, facts), (actual, same_facts) = gradients(fn), gradients(compiled)
        assert same_facts == facts
        torch.testing.assert_close(actual, expected)
