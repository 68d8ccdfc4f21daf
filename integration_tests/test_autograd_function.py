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


class OfItsClass(torch.autograd.Function):
    """Class methods, with a setup_context and a default argument."""

    factor = 3.0

    @classmethod
    def forward(cls, x, power=2):
        return x.sin() * cls.factor**power

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.power = inputs[1]

    @classmethod
    @once_differentiable
    def backward(cls, ctx, g):
        return g * ctx.saved_tensors[0].cos() * cls.factor**ctx.power, None


class OfASubclass(OfItsClass):
    factor = 5.0


def class_methods(x, w):
    return OfItsClass.apply(x) @ w + OfASubclass.apply(x, 3) + OfItsClass.apply(x, 1)


class OwnApply(OfItsClass):
    """Calls the inherited apply with other arguments."""

    @classmethod
    def apply(cls, x, *, times=2, power=1):
        return super().apply(x * times, power)


class OwnApplyOfASubclass(OwnApply):
    factor = 5.0


class ApplyWithoutTheClass(OfItsClass):
    @staticmethod
    def apply(x):
        return OfItsClass.apply(x.cos()) - 1


applied = OwnApplyOfASubclass.apply


def own_apply(x, w):
    return OwnApply.apply(x) @ w + OwnApplyOfASubclass.apply(x, power=2) + applied(x, times=3) + ApplyWithoutTheClass.apply(x)


class Apart(torch.autograd.Function):
    """Asks for None where a result has no gradient."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.set_materialize_grads(False)
        cos = x.cos()
        ctx.save_for_backward(x, w, cos)
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        return x.sin() @ w, cos, mask

    @staticmethod
    def backward(ctx, g, h, _):
        x, w, cos = ctx.saved_tensors
        of_x = of_w = None
        if g is not None:
            of_x, of_w = g @ w.t() * cos, x.sin().t() @ g
        if h is not None:
            of_x = -h * x.sin() if of_x is None else of_x - h * x.sin()
        return of_x, of_w


def all_of_several(x, w):
    a, b, mask = Apart.apply(x, w)
    return a * mask, b


def first_of_several(x, w):
    return Apart.apply(x, w)[0]


def second_of_several(x, w):
    return Apart.apply(x, w)[1] + w[0]


class Transformed(torch.autograd.Function):
    """With a gradient that is not the derivative, an output without one, and a result that is saved."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y, k=2.0):
        return x.exp() * y * k, x.exp() + y, x > y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.k = inputs
        ctx.save_for_backward(x, y, output[0])
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, g, h, _):
        x, _, product = ctx.saved_tensors
        return g * product * 7 + h * x.exp(), g * x.exp() * ctx.k + h, None


def product(x, k=2.0):
    a, b, _ = Transformed.apply(x, x.sin(), k)
    return (a * b).sum()


def under_vmap(x, w):
    a, b, mask = torch.vmap(Transformed.apply, (0, None))(x, w[0])
    return torch.where(mask, a, b) + torch.vmap(torch.vmap(lambda v: Transformed.apply(v, v * 2, 3.0)[0]))(x)


def under_grad(x, w):
    return torch.func.grad(product)(x) @ w


def under_grad_of_grad(x, w):
    return torch.func.grad(lambda v: torch.func.grad(product)(v).square().sum())(x) @ w


def under_vmap_of_grad(x, w):
    return torch.vmap(torch.func.grad(lambda v: product(v * w[0], 3.0)))(x)


def under_grad_of_vmap(x, w):
    return torch.func.grad(lambda v: torch.vmap(product)(v).sum())(x)


def under_jacrev(x, w):
    return torch.func.jacrev(lambda v: Transformed.apply(v, v.sin())[0])(x[0]) @ w


def under_vjp(x, w):
    value, back = torch.func.vjp(lambda v: Transformed.apply(v, v.sin())[1], x)
    return back(value)[0] @ w


TRANSFORMED = (
    *(under_vmap, under_grad, under_grad_of_grad, under_vmap_of_grad, under_grad_of_vmap),
    *(under_jacrev, under_vjp),
)


class OwnRule(torch.autograd.Function):
    """With a rule of its own for vmap, which is not what its forward does."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info, in_dims, x):
        return OwnRule.apply(x) * info.batch_size, in_dims[0]


class OwnRuleOfTwo(torch.autograd.Function):
    """The same, of two arguments and a number, of which the first may have the batch alone."""

    @staticmethod
    def forward(x, y, k):
        return x @ y * k, x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.k = inputs[2]

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g @ y.mT * ctx.k + h, x.mT @ g * 3, None

    @staticmethod
    def vmap(info, in_dims, x, y, k):
        assert info.randomness == "error" and in_dims[2] is None
        x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        y = y if in_dims[1] is None else y.movedim(in_dims[1], 0)
        a, b = OwnRuleOfTwo.apply(x, y, k)
        return (a * 5, b.movedim(0, 1)), (0, 1)


def own_rule(x, w):
    return torch.vmap(lambda v: OwnRule.apply(v * 2))(x) @ w


def own_rule_of_two(x, w):
    a, b = torch.vmap(lambda v: OwnRuleOfTwo.apply(v, w, 2.0), 1)(x.expand(3, 3, 4).movedim(1, 2).movedim(2, 1))
    return a.sum(0) + b.sum(0)


def own_rule_in_turn(x, w):
    twice = torch.vmap(torch.vmap(lambda v, u: OwnRuleOfTwo.apply(v, u, 2.0)[0], (0, None)), (None, 0))
    return twice(x.expand(2, 3, 4), w.expand(2, 4, 4)).sum((0, 1))


def own_rule_of_gradients(x, w):
    return torch.vmap(torch.func.grad(lambda v: OwnRule.apply(v * w[0]).sum()))(x)


def gradient_of_own_rule(x, w):
    return torch.func.grad(lambda v: (torch.vmap(OwnRule.apply)(v) @ w).sum())(x)


class OwnTangent(torch.autograd.Function):
    """With a jvp that is not what its backward says."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, k, y):
        return x * y * k, x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.k, y = inputs
        ctx.save_for_backward(x, y, output[1])
        ctx.save_for_forward(y, output[1], x)

    @staticmethod
    def backward(ctx, g, h):
        x, y, exp = ctx.saved_tensors
        return g * y * ctx.k + h * exp, None, g * x * ctx.k

    @staticmethod
    def jvp(ctx, s, _, t):
        y, exp, x = ctx.saved_tensors
        return (s * y + t * x) * ctx.k * 11, s * exp * x


class OnlyTangent(torch.autograd.Function):
    """Without a backward."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, t):
        return t * ctx.saved_tensors[0] * 2


def own_tangent(x, w):
    value, tangent = torch.func.jvp(lambda a, b: OwnTangent.apply(a, 2.0, b), (x, x.cos()), (x.sin(), x))
    return value[0] + tangent[0] + tangent[1] @ w


def own_tangent_of_one(x, w):
    return torch.func.jvp(lambda a: OwnTangent.apply(a, 2.0, w[0]), (x,), (x,))[1]


def own_tangents(x, w):
    return torch.func.jacfwd(lambda a: OwnTangent.apply(a, 2.0, a.sin())[0])(x[0]) @ w


def own_tangent_of_gradients(x, w):
    return torch.func.hessian(lambda a: OwnTangent.apply(a, 2.0, a.sin())[0].sum())(x[0]) @ w


def gradient_of_own_tangent(x, w):
    return torch.func.grad(lambda a: torch.func.jvp(lambda b: OwnTangent.apply(b, 2.0, a)[0], (a,), (w[:3],))[1].sum())(x)


def own_tangent_in_turn(x, w):
    return torch.vmap(lambda a: torch.func.jvp(lambda b: OwnTangent.apply(b, 2.0, b.sin())[1], (a,), (a,))[1])(x)


def only_tangent(x, w):
    return torch.func.jvp(OnlyTangent.apply, (x.detach(),), (x.detach(),))[1] @ w


OWN = (
    *(own_rule, own_rule_of_two, own_rule_in_turn, own_rule_of_gradients, gradient_of_own_rule),
    *(own_tangent, own_tangent_of_one, own_tangents, own_tangent_of_gradients, gradient_of_own_tangent, own_tangent_in_turn),
    only_tangent,
)


def without_a_rule(x, w):
    return torch.vmap(lambda v: OfItsClass.apply(v * 2))(x) @ w


def inputs(requires=(True, True)):
    torch.manual_seed(1)
    return torch.randn(3, 4, requires_grad=requires[0]), torch.randn(4, 4, requires_grad=requires[1])


PROGRAMS = (
    *(cube, masked_linear, reverse, reads_a_parameter, same_twice, written_in_place),
    *(class_methods, own_apply, all_of_several, first_of_several, second_of_several, *TRANSFORMED),
)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_values_and_gradients(fn, backend):
    check(fn, *inputs(), backend=backend, module=linear)
    check(fn, *inputs((True, False)), backend=backend, module=linear)


@pytest.mark.parametrize("fn", [class_methods, all_of_several, *TRANSFORMED], ids=lambda f: f.__name__)
def test_the_whole_stack_with_transforms(fn):
    check(fn, *inputs(), backend="inductor", module=linear)


@pytest.mark.parametrize("fn", OWN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_rules_of_its_own_are_asked(fn, backend):
    check(fn, *inputs(), backend=backend, module=linear)
    torch.testing.assert_close(tracework.compile(fn, backend=backend, fullgraph=True)(*inputs()), fn(*inputs()))


def test_a_function_without_a_rule_for_vmap_is_refused_as_in_eager():
    for fn in (without_a_rule, tracework.compile(without_a_rule, backend="eager")):
        with pytest.raises(RuntimeError, match="does not have vmap support"):
            fn(*inputs())


def test_a_tensor_of_a_transform_that_is_over():
    def fn(x):
        return x.sin() * 2

    kept = []
    torch.func.grad(lambda x: kept.append(x) or x.sum())(torch.ones(3))
    torch.testing.assert_close(tracework.compile(fn, backend="eager")(kept[0]), fn(torch.ones(3)))


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


class Fails(torch.autograd.Function):
    """Its backward raises."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * {}["missing"]


def caught_around_apply(x):
    try:
        y = Fails.apply(x * 3)
    except KeyError:
        return x * 5
    return x * 7 + y.detach()


@pytest.mark.parametrize("program", [noted, written_without_gradients, caught_around_apply])
def test_what_cannot_be_captured_runs_plainly(program, caplog):
    fn = tracework.compile(program, backend="eager")
    results = []
    for call in (program, fn):
        SEEN.clear()
        x = torch.ones(3, requires_grad=True)
        call(x).sum().backward()
        results.append((x.grad, len(SEEN)))
    torch.testing.assert_close(*results)
    assert "please report" not in caplog.text


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


def masked_where_modes_index(x, w):
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    parts = torch.arange(x.shape[1]) // 2
    same = torch.vmap(torch.vmap(lambda q, k: parts[q] == parts[k], (None, 0)), (0, None))
    with TransformGetItemToIndex():
        mask = same(torch.arange(x.shape[1]), torch.arange(x.shape[1]))
    return x @ torch.where(mask, w, 0)


def test_the_mode_in_which_masks_index_tensors():
    check(masked_where_modes_index, *inputs(), backend="eager", module=linear)
