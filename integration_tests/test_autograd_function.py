"""torch.autograd.Function with gradients inside a compiled function."""

import pytest
import torch
import tracework
from torch.autograd.function import once_differentiable
from training import BACKENDS, check


class Cube(torch.autograd.Function):
    """Saves an input, a number, and a tensor as an attribute."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k, ctx.y = k, x.exp()
        return x**3 * k, x.detach().sum()

    @staticmethod
    def backward(ctx, g, g2):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2 * ctx.k + ctx.y * g2, None


class MaskedLinear(torch.autograd.Function):
    """setup_context, a default argument, an output without gradient, needs_input_grad, once_differentiable."""

    @staticmethod
    def forward(x, w, bias=None):
        y = x @ w.t()
        return y * (y > 0), y > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, _ = inputs
        ctx.save_for_backward(x, w, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        x, w, mask = ctx.saved_tensors
        g = g * mask
        grad_x = g @ w if ctx.needs_input_grad[0] else None
        grad_w = g.t() @ x if ctx.needs_input_grad[1] else None
        return grad_x, grad_w, None


class Reverse(torch.autograd.Function):
    """Gives its input back as a view; defines vjp."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def vjp(ctx, g):
        return g.neg() * ctx.factor, None


linear = torch.nn.Linear(4, 4)


class ReadsAParameter(torch.autograd.Function):
    """What it reads beside its arguments gets no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x @ linear.weight

    @staticmethod
    def backward(ctx, g):
        return g @ linear.weight.t()


def cube(x, w):
    a, b = Cube.apply(x, 2)
    return (a.sum() + b) * w.sum()


def masked_linear(x, w):
    y, mask = MaskedLinear.apply(x, w)
    return y * 2, mask


def reverse(x, w):
    return Reverse.apply(x, 0.5) @ w


def reads_a_parameter(x, w):
    return ReadsAParameter.apply(x) @ w, ReadsAParameter.apply(x.detach()) + w[0]


def same_twice(x, w):
    return Multiply.apply(x, x) + Multiply.apply(x, w[0])


class Multiply(torch.autograd.Function):
    """Two arguments that may be one tensor."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, (g * a).sum_to_size(b.shape)


class Scaled(torch.autograd.Function):
    """Saves an argument that its gradient unpacks and does not read."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * 3

    @staticmethod
    def backward(ctx, g):
        _, b = ctx.saved_tensors
        return g * b, None


class InPlace(torch.autograd.Function):
    """With a gradient that is not the derivative, so that it shows who made it."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 7


def written_in_place(x, w):
    made = x * 3
    part = made[1:]
    doubled = InPlace.apply(made)
    return doubled.sin() @ w, made.exp(), part.cos(), doubled is made


def inputs(requires=(True, True)):
    torch.manual_seed(1)
    return torch.randn(3, 4, requires_grad=requires[0]), torch.randn(4, 4, requires_grad=requires[1])


PROGRAMS = (cube, masked_linear, reverse, reads_a_parameter, same_twice, written_in_place)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_values_and_gradients(fn, backend):
    check(fn, *inputs(), backend=backend, module=linear)
    check(fn, *inputs((True, False)), backend=backend, module=linear)


@pytest.mark.parametrize(
    "write", [lambda a: a.mul_(2), lambda a: a.detach().add_(1), lambda a: a.t_(), lambda a: a.unsqueeze_(0)]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_saved_may_not_be_written_to_whether_the_gradient_reads_it_or_not(write, backend):
    def program(x, w):
        a = x @ w
        made = Scaled.apply(a, x[0])
        write(a)
        return made

    for fn in (program, tracework.compile(program, backend=backend)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            fn(*inputs()).sum().backward()


def test_the_whole_stack():
    check(lambda x, w: (cube(x, w), *masked_linear(x, w), reverse(x, w)), *inputs(), backend="inductor")


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_gradient_of_the_gradient(backend):
    fn = tracework.compile(lambda x: Multiply.apply(x, x.sin()), backend=backend, fullgraph=True)
    x, expected = torch.randn(5, requires_grad=True), []
    for call in (lambda x: Multiply.apply(x, x.sin()), fn):
        (g,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        expected.append(torch.autograd.grad(g.sum(), x)[0])
    torch.testing.assert_close(*expected)


def test_once_differentiable_is_kept():
    fn = tracework.compile(lambda x, w: MaskedLinear.apply(x, w)[0], backend="eager", fullgraph=True)
    x, w = inputs()
    (g,) = torch.autograd.grad(fn(x, w), x, torch.ones(3, 4, requires_grad=True), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


SEEN = []


class Notes(torch.autograd.Function):
    """Its backward changes a list."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        SEEN.append("backward")
        return g * 2


def noted(x):
    return Notes.apply(x * 3) + 1


def written_without_gradients(x):
    made = x * 3
    with torch.no_grad():
        doubled = InPlace.apply(made)
    return made * 2 + doubled


@pytest.mark.parametrize("program", [noted, written_without_gradients])
def test_what_cannot_be_captured_runs_plainly(program):
    fn = tracework.compile(program, backend="eager")
    results = []
    for call in (program, fn):
        SEEN.clear()
        x = torch.ones(3, requires_grad=True)
        call(x).sum().backward()
        results.append((x.grad, len(SEEN)))
    torch.testing.assert_close(*results)


def test_what_forward_reads_is_guarded():
    class Scaled(torch.autograd.Function):
        factor = 2.0

        @staticmethod
        def forward(ctx, x):
            return x * Scaled.factor

        @staticmethod
        def backward(ctx, g):
            return g * Scaled.factor

    fn = tracework.compile(lambda x: Scaled.apply(x), backend="eager", fullgraph=True)
    for factor in (2.0, 5.0):
        Scaled.factor = factor
        x = torch.ones(3, requires_grad=True)
        y = fn(x)
        y.sum().backward()
        assert y[0].item() == factor and x.grad[0].item() == factor


class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, notes):
        ctx.notes = notes
        notes.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.notes.append("backward")
        return gradient * 2, None


def test_a_backward_that_changes_what_the_frame_made():
    def f(x):
        notes = []
        y = Noted.apply(x, notes)
        before = list(notes)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        return before, notes, x.grad.tolist()

    assert tracework.compile(f, backend="eager")(torch.ones(3, requires_grad=True)) == f(torch.ones(3, requires_grad=True))
