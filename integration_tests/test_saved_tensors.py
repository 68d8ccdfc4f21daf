"""Compiled functions under forward-mode AD and under saved-tensor hooks: eager's values, gradients, tangents, and calls of the hooks."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import tracework
from training import BACKENDS, same


def product(x):
    return x.sin() * x


@pytest.mark.parametrize("backend", BACKENDS)
def test_dual_numbers_keep_their_tangents(backend):
    compiled = tracework.compile(product, backend=backend)
    x, tangent = torch.arange(3.0), torch.ones(3)
    same(compiled(x), product(x))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        found, expected = (forward_ad.unpack_dual(fn(dual)) for fn in (compiled, product))
        same(list(found), list(expected))
        assert expected.tangent is not None and forward_ad.unpack_dual(compiled(x)).tangent is None
    same(compiled(x), product(x))
    same(torch.func.jvp(compiled, (x,), (tangent,)), torch.func.jvp(product, (x,), (tangent,)))


def dual_numbers_inside(x, tangent):
    y = x * 2
    with forward_ad.dual_level():
        made = forward_ad.make_dual(y, tangent).sin() * 2
        found = forward_ad.unpack_dual(made)
    return found.primal, found.tangent + 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_dual_numbers_inside(backend):
    given = torch.arange(3.0), torch.ones(3)
    same(tracework.compile(dual_numbers_inside, backend=backend)(*given), dual_numbers_inside(*given))


def hooks_inside(x, packed):
    a = x * 2
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(tuple(t.shape)), t)[1], lambda t: t * 2):
        y = a.sin() * x
    return y.exp()


def moved_inside(x, packed):
    with torch.autograd.graph.save_on_cpu():
        y = x.sin() * x
    return y.exp()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [hooks_inside, moved_inside])
def test_hooks_inside(fn, backend):
    found = []
    for each in (fn, tracework.compile(fn, backend=backend)):
        x, packed = torch.arange(3.0, requires_grad=True), []
        y = each(x, packed)
        found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0], packed])
    same(found[1], found[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_around_a_compiled_function(backend):
    compiled = tracework.compile(product, backend=backend)
    for change in (1, 2):
        found = []
        for fn in (product, compiled):
            x, packed = torch.arange(3.0, requires_grad=True), []
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t, packed=packed: (packed.append(1), t)[1], lambda t, change=change: t * change
            ):
                y = fn(x)
            found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0], packed])
        same(found[1], found[0])
    x = torch.arange(3.0, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = compiled(x)
    same(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(product(x).sum(), x)[0])
