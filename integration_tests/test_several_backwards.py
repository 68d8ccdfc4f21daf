"""Several results of one compiled function, each with a backward of its own: what eager allows is allowed, what it refuses is refused."""

import pytest
import torch
import tracework
from torch.utils.hooks import RemovableHandle
from training import BACKENDS


def apart(x, a, b):
    return (x @ a).sin(), (x @ b).cos() * b


def of_one_value(x, a, b):
    h = (x @ a).sin()
    return h * b, h.cos()


def of_one_leaf(x, a, b):
    return (x @ a).sin() * b, (a * x).cos()


def of_a_detached_value(x, a, b):
    made = (x @ a).tanh()
    return (made.detach() @ b).sigmoid(), (made @ b.detach()).sigmoid()


# 0 and 1: backward of that result; r: the graph is retained; w: the first leaf is written to
STEPS = ("0 1", "1 0", "0 0", "0 1 0", "0 w 1", "0r 1 0", "0 1r 1", "0r 1r 0 1", "w 0")


def outcome(fn, steps):
    """Whether each step was allowed, and the gradients where all were."""
    torch.manual_seed(0)
    a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    results, allowed = fn(torch.randn(4, 4), a, b), []
    for step in steps.split():
        try:
            if step == "w":
                with torch.no_grad():
                    a.add_(1)
            else:
                results[int(step[0])].sum().backward(retain_graph=step.endswith("r"))
            allowed.append(True)
        except RuntimeError as error:
            allowed.append("second time" if "second time" in str(error) else "written" if "inplace" in str(error) else str(error))
    return allowed, [a.grad, b.grad] if all(x is True for x in allowed) else None


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("fn", [apart, of_one_value, of_one_leaf, of_a_detached_value], ids=lambda f: f.__name__)
def test_backwards(fn, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    for steps in STEPS:
        found, expected = outcome(compiled, steps), outcome(fn, steps)
        assert found[0] == expected[0], steps
        torch.testing.assert_close(found[1], expected[1])


def test_sums_with_sizes():
    def f(a, b):
        h = a + a.shape[0]
        return h * h, b.cos() * b.shape[0]

    compiled = tracework.compile(f, dynamic=True)
    for size in (3, 5):
        a, b = (torch.arange(float(size), requires_grad=True) for _ in range(2))
        for expected, found in zip(f(a, b), compiled(a, b), strict=True):
            (grad,) = [g for g in torch.autograd.grad(expected.sum(), [a, b], allow_unused=True) if g is not None]
            (mine,) = [g for g in torch.autograd.grad(found.sum(), [a, b], allow_unused=True) if g is not None]
            torch.testing.assert_close((found, mine), (expected, grad))


def test_results_of_results_whose_inputs_have_one_open_size():
    """A sum of gradients whose sizes are two symbols that are known to be equal comes apart, as one of equal sizes does."""

    def program(v, w):
        h = v * 1
        y = w.sin() * h
        return y, h.reshape(-1).mean() * y

    def gradients(function, size):
        v, w = (torch.linspace(-1, end, size * size, dtype=torch.float64).reshape(size, size).requires_grad_() for end in (2, 3))
        y, z = function(v, w)
        return torch.autograd.grad(y.sum() + z.sum(), [v, w, y])

    compiled = tracework.compile(program, dynamic=True)
    for size in (4, 5):
        torch.testing.assert_close(gradients(compiled, size), gradients(program, size))


def test_compiling_takes_no_numbers_of_hooks():
    def f(x):
        y = x.sin()
        return y, y * y

    compiled = tracework.compile(f)
    number = RemovableHandle.next_id
    compiled(torch.ones(2, requires_grad=True))
    assert RemovableHandle.next_id == number


def test_a_result_with_a_freed_history_may_be_a_view_that_was_made_without_gradients():
    """The library call for the product of a vector gives a matrix of one row, which a view shows."""
    linear, x = torch.nn.Linear(3, 3), torch.randn(3)

    def f(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = linear(x)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        return y, gradient

    with torch.no_grad():
        expected, found = f(x), tracework.compile(f, backend="aot_eager")(x)
    torch.testing.assert_close(found, expected)
    with pytest.raises(RuntimeError, match="a second time"):
        found[0].sum().backward()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_several_gradients_at_once(backend):
    """is_grads_batched, vectorized jacobians and a backward under vmap call the backward with tensors that have no memory of their own."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)).double()
    x, given = torch.randn(2, 4, dtype=torch.float64, requires_grad=True), torch.randn(5, 2, 3, dtype=torch.float64)
    found = []
    for call in (model, tracework.compile(model, backend=backend)):
        y = call(x)
        first = torch.autograd.grad(y, [x, *model.parameters()], given, is_grads_batched=True, retain_graph=True)
        (again,) = torch.autograd.grad(y, x, given, is_grads_batched=True, create_graph=True)
        second = torch.autograd.grad(again.square().sum(), [x, model[0].weight], retain_graph=True)
        mapped = torch.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(given)
        whole = torch.autograd.functional.hessian(lambda x: call(x).sin().sum(), x, vectorize=True)
        found.append([*first, again, *second, mapped, whole])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_several_gradients_of_gradients_through_random_numbers(backend):
    """The graph is run again for them, and draws outside of what takes several gradients at once."""

    def f(x):
        return torch.nn.functional.dropout(x.sin(), 0.5) * x.exp()

    x, given = torch.randn(4, dtype=torch.float64, requires_grad=True), torch.eye(4, dtype=torch.float64)
    found = []
    for call in (f, tracework.compile(f, backend=backend)):
        torch.manual_seed(0)
        y = call(x)
        (first,) = torch.autograd.grad(y, x, given, is_grads_batched=True, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(0), x, given, is_grads_batched=True, retain_graph=True)
        mapped = torch.vmap(lambda v: torch.autograd.grad(y, x, v, create_graph=True)[0])(given)
        found.append([first, second, mapped, *torch.autograd.grad(mapped.sum(), x), torch.rand(2)])
    torch.testing.assert_close(found[1], found[0])


def out_of_order(x):
    first = x.sin()
    second = (x * 2).cos()
    third = first * second
    fourth = (x + 1).exp()
    return third, fourth, first, second, (third + first).tanh()


def of_one_value_in_turns(x):
    common = x.sin()
    first, second, third = common * 2, common.exp(), common.cos()
    return third, first, second


@pytest.mark.parametrize("fn", [out_of_order, of_one_value_in_turns])
@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_of_results_run_in_the_order_of_eager(fn, backend):
    seen = []
    for call in (fn, tracework.compile(fn, backend=backend)):
        results = call(torch.linspace(0, 1, 4, dtype=torch.float64, requires_grad=True) * 1)
        for place, result in enumerate(results):
            result.register_hook(lambda g, place=place: seen.append(place))
        sum(result.square().sum() for result in results).backward()
    assert seen[len(results) :] == seen[: len(results)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_of_a_result_that_no_gradient_comes_to_is_not_called(backend):
    """Two results have a value in common, and one of them is computed from a third."""

    def of_a_third(x):
        third, common = x.sin(), (x + x).tanh()
        return third * common, common[:2] * 2, third

    seen = []
    for call in (of_a_third, tracework.compile(of_a_third, backend=backend)):
        x = torch.linspace(0, 1, 4, dtype=torch.float64, requires_grad=True)
        results = call(x * 1)
        for place, result in enumerate(results):
            result.register_hook(lambda g, place=place: seen.append((place, g.sum().item())))
        for result in results:
            torch.autograd.grad(result.square().sum(), x, retain_graph=True)
    half = len(seen) // 2
    assert [place for place, _ in seen[half:]] == [place for place, _ in seen[:half]] == [0, 2, 1, 2]
    assert [value for _, value in seen[half:]] == pytest.approx([value for _, value in seen[:half]])


VIEWS_MADE_TOGETHER = {
    "split": lambda h: h.split(4, -1),
    "split with sizes": lambda h: h.split([4, 4, 4], 1),
    "chunk": lambda h: h.chunk(3, -1),
    "tensor_split": lambda h: h.tensor_split([4, 8], dim=-1),
    "hsplit": lambda h: h.hsplit(3),
    "unbind": lambda h: h.unflatten(-1, (3, 4)).unbind(1),
    "unpacked": lambda h: iter(h.view(-1, 3, 4).transpose(0, 1)),
    "unsafe_chunk": lambda h: h.unsafe_chunk(3, -1),
}


@pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("apart", VIEWS_MADE_TOGETHER)
def test_results_that_are_computed_from_views_made_together(apart, dynamic, backend):
    """As keys and values are in a model that gives its cache back; gradients of each result, and with respect to results."""

    def block(x, w):
        q, k, v = VIEWS_MADE_TOGETHER[apart](x @ w)
        k, v = torch.cat([k[:0], k]), v + 1
        return torch.softmax(q @ k.T, -1) @ v, k, v

    def model(x, w):
        y, k, v = block(x, w)
        z, *others = block(torch.cat([y, y], -1), w)
        return z, k, v, *others

    compiled = tracework.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
    torch.manual_seed(0)
    x, w = torch.randn(6, 8, dtype=torch.float64, requires_grad=True), torch.randn(8, 12, dtype=torch.float64, requires_grad=True)
    for begin in range(5):
        for inputs in (lambda found: (x, w), lambda found: (found[1], found[2], w)):
            outcomes = []
            for fn in (model, compiled):
                found = fn(x, w)
                outcomes.append(torch.autograd.grad(found[begin].square().sum(), inputs(found), allow_unused=True))
            torch.testing.assert_close(*outcomes)
    outcomes = [torch.autograd.grad(sum(r.sin().sum() for r in fn(x, w)), (x, w)) for fn in (model, compiled)]
    torch.testing.assert_close(*outcomes)
