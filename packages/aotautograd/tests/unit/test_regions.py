"""Parts of the program under another mode: no_grad, enable_grad, autocast, custom Functions, detach."""

import pytest
import torch


class Cube(torch.autograd.Function):
    """With a gradient that is not the derivative, so that it shows who made it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 10


def no_grad_region(x, w):
    with torch.no_grad():
        scale = (x * w).sum()
    return x * scale, scale, (x * w).detach()


def turned_on(x, w):
    with torch.enable_grad():
        y = x * w
    return y, x * 2


def custom(x, w):
    return Cube.apply(x * w), x.sum()


def views_without_gradients(x, w):
    with torch.no_grad():
        v = x.view(-1)
    return v, x.detach(), x.t(), w


REGIONS = {"no_grad": no_grad_region, "enable_grad": turned_on, "custom": custom, "views": views_without_gradients}


@pytest.mark.parametrize("name", REGIONS)
def test_region(name, check, real, data):
    check(REGIONS[name], real(3, 4), real(3, 4))
    check(REGIONS[name], data(3, 4), real(3, 4))
    check(REGIONS[name], data(3, 4), data(3, 4))


def test_gradients_turned_on_inside_no_grad(graph, eager_runner, real):
    import tracework_aotautograd as aot

    x, w = real(3), real(3)
    inner = graph(turned_on, 2)
    outer = torch.fx.Graph()
    a, b = outer.placeholder("a"), outer.placeholder("b")
    outer.call_function(torch._C._set_grad_enabled, (True,))
    y = outer.call_function(torch.mul, (a, b))
    outer.call_function(torch._C._set_grad_enabled, (False,))
    outer.output((y, outer.call_function(torch.mul, (a, 2))))
    assert inner is not None
    with torch.no_grad():
        call = aot.aot_compile(torch.fx.GraphModule({}, outer), [x, w], forward_compiler=eager_runner)
        made, plain = call(x, w)
        assert not torch.is_grad_enabled()
    assert made.requires_grad and not plain.requires_grad
    torch.testing.assert_close(torch.autograd.grad(made.sum(), x)[0], w.detach())


def test_autocast_around_and_inside(check, pair, compare):
    x = torch.randn(4, 4, requires_grad=True)

    def fn(x):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = x @ x
        return y, z, torch.softmax(y, -1)

    def inside(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return y, y.float() @ x

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = pair(fn, x)
        mine, theirs = found.call()
    compare[0](mine, theirs)
    compare[1](found.grads(mine, found.mine), found.grads(theirs, found.theirs))
    assert mine[0].dtype is torch.bfloat16
    check(inside, x, second=False)


def test_backward_under_autocast(pair):
    found = pair(lambda x: ((x @ x).sin(),), torch.randn(4, 4, requires_grad=True))
    mine, theirs = found.call()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (a,) = torch.autograd.grad(mine[0].sum(), found.mine)
    (b,) = torch.autograd.grad(theirs[0].sum(), found.theirs)
    torch.testing.assert_close(a, b)
