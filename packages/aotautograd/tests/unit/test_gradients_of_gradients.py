"""Gradients of gradients to the third order: with respect to inputs, and to results that are still there."""

import pytest
import torch
import tracework_aotautograd as aot
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Cube(torch.autograd.Function):
    """Its backward is differentiable."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a**3

    @staticmethod
    def backward(ctx, gradient):
        (a,) = ctx.saved_tensors
        return 3 * a * a * gradient


class Exponential(torch.autograd.Function):
    """Its backward reads its result."""

    @staticmethod
    def forward(ctx, a):
        result = a.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient * result


class Rounded(torch.autograd.Function):
    """Straight-through: its gradient is not that of what it computes."""

    @staticmethod
    def forward(ctx, a):
        return a.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class InTheMiddle(torch.autograd.Function):
    """Its backward reads a value of the middle, which has no history."""

    @staticmethod
    def forward(ctx, a, b):
        middle = a.sin()
        ctx.save_for_backward(middle, b)
        return middle * b

    @staticmethod
    def backward(ctx, gradient):
        middle, b = ctx.saved_tensors
        return gradient * b * middle, gradient * middle


@torch.no_grad()
def target(x, w):
    return (x @ w).tanh()


def without_gradients(x, w):
    with torch.no_grad():
        scale = x * w
    return (scale * w * w,)


def momentum(x, w):
    """A target that moves after the weights, as in DQN."""
    with torch.no_grad():
        slow = w.clone().mul_(0.9).add_(w * 0.1)
    return (F.smooth_l1_loss((x @ w).sin(), (x @ slow).max(1, keepdim=True)[0].expand(3, 3)), x @ w)


def straight_through(x, w):
    y = x * w
    return ((y + ((y * 4).round() / 4 - y).detach()).square() * w,)


def detached_in_place(x, w):
    y = x * w
    y.detach_()
    return (y * w * w,)


def result_of_a_formula(x, w):
    """Formulas read results: the second one that of the first."""
    return (x @ w).tanh(), (x @ w).tanh().exp()


def chained_formulas(x, w):
    y = (x @ w).sigmoid()
    z = (y * w).exp()
    return y, z, (z + 1).sqrt(), torch.softmax(z, -1), z.reciprocal()


def written_results(x, w):
    y = x @ w
    y.tanh_()
    z = y * w
    z.exp_()
    return y, z


def random(x, w):
    return (F.dropout(x, 0.5).tanh() * w.detach() * w, torch.rand_like(x).mul(w).exp())


def function_below_a_result(x, w):
    y = InTheMiddle.apply(w, x)
    return y, torch.cat([y, x])[1:4]


PROGRAMS = [
    lambda x, w: ((x * w).detach() * w * w,),
    lambda x, w: ((x * w).data * w * w,),
    lambda x, w: (target(x, w) * w * w,),
    without_gradients,
    momentum,
    straight_through,
    detached_in_place,
    result_of_a_formula,
    chained_formulas,
    written_results,
    random,
    lambda x, w: (Cube.apply(x * w), w * 2),
    lambda x, w: (Exponential.apply(x * w) * w,),
    lambda x, w: (Exponential.apply(x * w), (x * w).exp()),
    lambda x, w: (Rounded.apply(x * w).square() * w,),
    lambda x, w: (InTheMiddle.apply(x, w * w) * x,),
    lambda x, w: (InTheMiddle.apply(w, x), torch.cat([InTheMiddle.apply(w, x), x])[1:4]),
    function_below_a_result,
    lambda x, w: (checkpoint(lambda a, b: (a @ b).tanh() * a.detach(), x, w, use_reentrant=False) * w,),
]


@pytest.mark.parametrize(("leaves", "with_results"), [(False, True), (True, False)])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_to_the_third_order(number, leaves, with_results, pair, real):
    made = pair(PROGRAMS[number], real(3, 3), real(3, 3), make=None if leaves else lambda x, w: (x * w, w * 1))
    found = []
    for results, inputs in zip(made.call(), (made.mine, made.theirs), strict=True):
        places = [*inputs, *(results if with_results else ())]
        heads, orders = [r for r in results if r.requires_grad], []
        for _ in range(3):
            if heads:
                total = sum((number + 2) * head.sin().sum() for number, head in enumerate(heads))
                gradients = torch.autograd.grad(total, places, create_graph=True, allow_unused=True)
                heads = [g for g in gradients if g is not None and g.requires_grad]
                orders += [torch.zeros(()) if g is None or not g.any() else g.detach() for g in gradients]
        found.append(orders)
    torch.testing.assert_close(*found)
    assert len(found[0]) > len(places)


class Once(torch.autograd.Function):
    """A backward that is not differentiable."""

    @staticmethod
    def forward(ctx, a):
        return a * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * 2


def test_what_eager_cannot_differentiate_twice_raises(pair, real):
    made = pair(lambda x: (Once.apply(x.sin()).square(),), real(3))
    errors = []
    for call, x in ((_with_fallback(made), made.mine[0]), (made.fn, made.theirs[0])):
        (gradient,) = torch.autograd.grad(call(x)[0].sum(), x, create_graph=True)
        torch.testing.assert_close(gradient, 8 * x.sin() * x.cos())
        with pytest.raises(RuntimeError) as caught:
            gradient.sum().backward()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def _with_fallback(made):
    import tracework_aotautograd as aot

    graph = torch.fx.Graph()
    graph.output(graph.call_function(made.fn, (graph.placeholder("x"),)))
    gm = torch.fx.GraphModule({}, graph)
    return aot.aot_compile(gm, made.mine, forward_compiler=lambda gm, spec: lambda values: gm(*values))


def test_casts_of_the_call_are_those_of_its_gradients(pair, real):
    x, w = real(3, 3).detach().float().requires_grad_(), real(3, 3).detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = pair(lambda x, w: ((x @ w).sin() * w.detach() * w,), x, w)
        results = made.call()
    found = []
    for (y,), inputs in zip(results, (made.mine, made.theirs), strict=True):
        first = torch.autograd.grad(y.sum(), inputs, create_graph=True)
        found += [(*first, *torch.autograd.grad(sum(g.square().sum() for g in first), inputs))]
    assert found[0][0].dtype == torch.float32
    torch.testing.assert_close(*found, rtol=2e-2, atol=2e-2)  # the casts are to 8 bits of mantissa


def test_a_result_that_was_written_to_or_is_gone(pair, real):
    """Gradients go on to what it was computed from."""

    def written(results):
        with torch.no_grad():
            results[0].add_(1)
        return results[1:]

    for change in (written, lambda results: results[1:]):
        made = pair(lambda x: ((x * 2).exp(), (x * 2).exp().square() * x), real(3))
        found = []
        for results, (x,) in zip(made.call(), (made.mine, made.theirs), strict=True):
            (last,) = change(results)
            (first,) = torch.autograd.grad(last.sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.sum(), x)[0])
        torch.testing.assert_close(*found)


def test_hooks_of_a_result_that_is_gone(pair, real):
    """They see what comes to it in a gradient of a gradient, too."""
    made = pair(lambda x: (torch.softmax(x, -1),), real(3, 3))
    found = []
    for (y,), (x,) in zip(made.call(), (made.mine, made.theirs), strict=True):
        seen = []
        y.register_hook(lambda g, seen=seen: seen.append(g.detach()) or 2 * g)
        total = (y * x).square().sum()
        del y
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        found.append((*torch.autograd.grad(first.square().sum(), x), *seen))
    assert len(found[1]) == 3
    torch.testing.assert_close(*found)


def reversed_gradient(x):
    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.view_as(a)

        @staticmethod
        def backward(ctx, gradient):
            return -gradient

    y = x.sin()
    return Reversed.apply(x), Reversed.apply(y), y


def test_a_view_that_a_function_gives_has_its_gradient(pair, real):
    """Such a graph is left to eager: a view made again outside would have the gradient of a view."""
    import tracework_aotautograd as aot

    with pytest.raises(aot.Refusal, match="gives a view that is a result"):
        pair(reversed_gradient, real(3))


@pytest.mark.parametrize(
    "fn",
    [lambda x, w: (x.tanh_(), x * w), lambda x, w: ((x * w).view(-1)[::2].sigmoid_(),), lambda x, w: ((x * w).t().exp_() * w,)],
)
def test_a_formula_that_reads_what_it_writes_to_a_view_or_an_input_is_left_to_eager(fn, graph, eager_runner, real):
    inputs = [real(4, 4) * 1, real(4, 4)]
    with pytest.raises(aot.Refusal, match="writes what its derivative reads"):
        aot.aot_compile(graph(fn, 2), inputs, forward_compiler=eager_runner, options=aot.AotOptions(fallback=False))
