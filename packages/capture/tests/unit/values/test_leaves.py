"""Programs that ask whether an input is a leaf, or do what depends on it: graphs made for a leaf serve no other tensor, and the reverse."""

import gc
import weakref

import pytest
import torch
from harness import assert_same
from tracework_capture.hook.context import optimize


def asks(x):
    return x.is_leaf, x.grad_fn is None, x * 2


def runs_backward(x):
    (x * x).sum().backward(retain_graph=True)
    return x * 2


def asks_for_gradients(x):
    return torch.autograd.grad((x * x).sum(), x)[0], x * 2


def retains(x):
    x.retain_grad()
    return x * 2


def writes(x):
    x.add_(1)
    return x * 2


PROGRAMS = (asks, runs_backward, asks_for_gradients, retains, writes)


def outcome(function, leaf):
    """Values, and the gradients of the input and of what it was made of."""
    base = torch.ones(2, requires_grad=True)
    x = base if leaf else base * 3
    try:
        found = function(x)
    except RuntimeError as error:
        return str(error)
    y = found[-1] if type(found) is tuple else found
    y.sum().backward()
    return found, base.grad, x.retains_grad, x.grad if leaf or x.retains_grad else None


@pytest.mark.parametrize("order", [(True, False, True), (False, True, False)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_leaves_and_others_are_told_apart(program, order):
    call = optimize(lambda gm, inputs: gm.forward)(program)
    for leaf in order:
        assert_same(outcome(call, leaf), outcome(program, leaf))


class Holder:
    pass


def test_a_tensor_that_was_an_input_is_let_go():
    holder = Holder()
    holder.tensor = torch.ones(2)
    call = optimize(lambda gm, inputs: gm.forward)(lambda x: x * holder.tensor)
    call(torch.ones(2))
    held = weakref.ref(holder.tensor)
    gc.disable()
    try:
        holder.tensor = torch.zeros(2)
        assert held() is None
    finally:
        gc.enable()
    assert_same(call(torch.ones(2)), torch.zeros(2))
