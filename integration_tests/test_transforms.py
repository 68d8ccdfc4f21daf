"""torch.func inside a compiled function."""

import pytest
import torch
import tracework
from torch.func import functional_call, functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from training import BACKENDS, check

linear = torch.nn.Linear(4, 4)
made_before = torch.vmap(grad(lambda a: (a * linear.weight).sin().sum()))


def loss(p, x):
    return ((x @ p["w"]).tanh() + p["b"]).pow(2).mean()


def mapped(x, w):
    return torch.vmap(lambda a: (a * w[0]).sum())(x)


def mapped_dims(x, w):
    found = torch.vmap(lambda a, b, c: {"o": (a @ w[:3] * c, b + a)}, in_dims=(1, None, None), out_dims=1)(x, w[0, :3], 3)
    return found["o"]


def mapped_twice(x, w):
    return torch.vmap(torch.vmap(torch.dot), in_dims=(0, None))(x[:, None].expand(3, 4, 4), w)


def mapped_in_chunks(x, w):
    return torch.vmap(lambda a: a.sin(), chunk_size=2)(x)


def mapped_numbers(x, w):
    return torch.vmap(lambda a, b: (a * 2.5 + b).sin() * 3 - 1, in_dims=(0, None))(x[0], 2)


def gradient_of_a_dict(x, w):
    return grad(loss)({"w": w, "b": w[0]}, x)["w"]


def value_and_aux(x, w):
    (ga, gb), (value, (twice, n)) = grad_and_value(
        lambda a, b: ((a @ b).sum(), (a * 2, [b.sin()])), argnums=(0, 1), has_aux=True
    )(x, w)
    return ga, gb, value, twice, n


def per_sample(x, w):
    found = torch.vmap(grad(loss), in_dims=(None, 0))({"w": w, "b": w[0]}, x)
    return found["w"], found["b"]


def jacobians(x, w):
    def fn(a):
        return (a @ w).sin()

    return jacrev(fn)(x[0]), jacfwd(fn)(x[0]), hessian(lambda a: fn(a).sum())(x[0]), torch.vmap(jacrev(fn))(x)


def forward_mode(x, w):
    return jvp(lambda a: (a @ w).sin(), (x,), (x * 2,))


def pull_back(x, w):
    found, function = vjp(lambda a, b: (a @ b).sin() + w[0], x, w)
    return found, *function(found * 2), *function(found)


def prepared(x, w):
    return made_before(x), made_before(w)


def third_order(x, w):
    return grad(lambda a: grad(lambda b: grad(lambda c: c.sin().sum())(b).sum())(a).sum())(x)


def other_parameters(x, w):
    return functional_call(linear, {"weight": w}, (x,)) + functional_call(linear, ({"bias": w[0]},), x)


def ensemble(x, w):
    weights = torch.stack([w, w + 1])
    return torch.vmap(lambda p: functional_call(linear, {"weight": p}, (x,)))(weights)


def without_writes(x, w):
    def f(a):
        b = a.clone()
        b.view(-1).mul_(3)
        return b.sin_() @ w

    return functionalize(f)(x) + grad(lambda a: functionalize(lambda b: b.sin().mul_(2).sum())(a))(x)


def all_other_parameters(x, w):
    new = {"weight": w, "bias": x[0]}
    return functional_call(linear, new, (x,), strict=True) + functional_call(linear, {"bias": x[1]}, (x,), strict=False)


PROGRAMS = (
    without_writes,
    all_other_parameters,
    mapped,
    mapped_dims,
    mapped_twice,
    mapped_in_chunks,
    mapped_numbers,
    gradient_of_a_dict,
    value_and_aux,
    per_sample,
    jacobians,
    forward_mode,
    pull_back,
    prepared,
    third_order,
    other_parameters,
    ensemble,
)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_values_and_gradients(fn, backend):
    torch.manual_seed(1)
    check(fn, torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True), backend=backend, module=linear)


def test_the_whole_stack():
    torch.manual_seed(1)
    inputs = torch.randn(3, 4), torch.randn(4, 4)
    check(lambda x, w: (*per_sample(x, w), *jacobians(x, w), *pull_back(x, w), mapped_numbers(x, w)), *inputs, backend="inductor")


def test_a_transformed_function_leaves():
    found = tracework.compile(lambda x: (x + 1, grad(torch.sin)), backend="eager", fullgraph=True)(torch.ones(()))[1]
    torch.testing.assert_close(found(torch.ones(())), torch.ones(()).cos())


class Half(torch.autograd.Function):
    """Its gradient is not that of its forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g / 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: grad(lambda a: Half.apply(a).sum())(x),
        lambda x: grad(lambda a: torch.autograd.grad((a * a).sum(), a, create_graph=True)[0].sum())(x),
        lambda x: torch.vmap(torch.nn.functional.dropout, randomness="different")(x).shape[0] * x,
        lambda x: torch.vmap(lambda a: torch.zeros(2), out_dims=None)(x) + 1,
    ],
)
def test_what_runs_plainly(fn):
    x = torch.randn(4, requires_grad=True)
    torch.testing.assert_close(tracework.compile(fn, backend="eager")(x), fn(x))


def linear_parts(x, w):
    value, push = linearize(lambda d, b: {"of": d["a"].sin() @ b, "sum": d["a"].sum()}, {"a": x}, w)
    return value, push({"a": x.cos()}, w), push({"a": x}, w.sin())


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_linearize(backend):
    torch.manual_seed(1)
    inputs = torch.randn(3, 4), torch.randn(4, 4)
    found, expected = tracework.compile(linear_parts, backend=backend, fullgraph=True)(*inputs), linear_parts(*inputs)
    torch.testing.assert_close(found, expected)


def test_linearize_where_gradients_are_asked_for():
    """It is left to eager: of what it computes early some parts are constants."""
    inputs = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4)
    for value, *pushed in (linear_parts(*inputs), tracework.compile(linear_parts, backend="aot_eager")(*inputs)):
        assert value["of"].requires_grad and [p["sum"].requires_grad for p in pushed] == [True, True]
    (expected, found) = (f(*inputs)[1]["of"] for f in (linear_parts, tracework.compile(linear_parts, backend="aot_eager")))
    torch.testing.assert_close(torch.autograd.grad(found.sum(), inputs[0]), torch.autograd.grad(expected.sum(), inputs[0]))


def test_errors_are_eagers():
    fn = tracework.compile(lambda x: torch.vmap(lambda a: torch.rand(2) + a)(x), backend="eager")
    with pytest.raises(RuntimeError, match="randomness"):
        fn(torch.ones(3))


@pytest.mark.parametrize("transform", [torch.vmap, grad, jacrev])
def test_a_raising_function_leaves_nothing_in_the_graph(transform, caplog):
    """What was traced before the exception stayed in the graph, which then failed when it ran."""

    def missing(a):
        return {}[a.sin().ndim]

    def fn(x):
        y = x * 2
        try:
            transform(missing)(y)
        except KeyError as error:
            y = y + len(error.args)
        return y.cos()

    x = torch.randn(3, 4)
    torch.testing.assert_close(tracework.compile(fn, backend="eager", fullgraph=True)(x), fn(x))
    assert "please report" not in caplog.text


def raising_after(effect):
    """A program that goes on where the function under a transform raises after this."""

    def fn(x):
        def raising(a):
            effect(a * 2)
            raise KeyError("k")

        try:
            return torch.vmap(raising, randomness="different")(x)
        except KeyError:
            return x + torch.rand(3), torch.zeros(())
        except RuntimeError:
            return x - 1

    return fn


@pytest.mark.parametrize(
    "effect", [lambda a: torch.rand(3), lambda a: torch.zeros(4).add_(a), lambda a: torch.set_grad_enabled(False)]
)
def test_what_a_raising_function_did_before_is_done(effect):
    """Random numbers are drawn, and what a transform refuses is refused, before the exception."""
    fn, x = raising_after(effect), torch.randn(3, 3)
    results = []
    for run in (tracework.compile(fn, backend="eager"), fn):
        torch.manual_seed(0)
        try:
            results.append((run(x), torch.is_grad_enabled()))
        finally:
            torch.set_grad_enabled(True)
    torch.testing.assert_close(*results)


def test_a_raising_function_in_another_transform():
    def inner(b):
        return {}[b.sin().ndim]

    def outer(a):
        try:
            return grad(inner)(a.sum())
        except KeyError:
            return a.cos().sum()

    def fn(x):
        return grad(outer)(x), torch.vmap(outer)(x[None])

    x = torch.randn(3)
    torch.testing.assert_close(tracework.compile(fn, backend="eager", fullgraph=True)(x), fn(x))
