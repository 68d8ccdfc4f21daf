"""Each kind of input and output slot in float64: values, gradients, aliasing and side effects as eager."""

import pytest
import torch
import torch.fx as fx
from tracework_aotautograd import AotOptions, aot_compile


def compiled(function, inputs):
    """`function` as a captured graph of one node, its halves run eagerly; a refusal is an error."""
    graph = fx.Graph()
    slots = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    graph.output(graph.call_function(lambda *a: tuple(function(*a)), tuple(slots)))
    gm = fx.GraphModule({}, graph)
    runner = lambda gm, spec: lambda values: gm(*values)
    return aot_compile(gm, inputs, forward_compiler=runner, options=AotOptions(fallback=False))


def double(*shape, grad=False):
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def through_view(x, w):
    x[1:].mul_(2)
    return (x * w,)


def at_top(x, w):
    x.add_(w)
    return (x * 2,)


def transposed(x, w):
    x.t().mul_(w.t())
    return (x.sin(), w.cos())


def views_of_one(x, w):
    y = x * w
    return y, y.view(-1), y.t()


def view_of_input(x, w):
    return x.view(-1), (x * w).sum()


def input_itself(x, w):
    return x, w * x


def detached(x, w):
    y = x * w
    return y.detach().cos() + y, y.detach()


def whole_numbers(x, w):
    return (x * w).argmax(-1), x * w, None, 3


def filled(x, w):
    out = torch.zeros_like(x)
    out[0] = x[0] * w[0]
    out[:, 1:].add_(w[:, 1:])
    return (out,)


def no_grad_region(x, w):
    with torch.no_grad():
        scale = (x * w).exp()
    return (x * scale,)


PURE = [views_of_one, view_of_input, input_itself, detached, whole_numbers, filled, no_grad_region]
MUTATING = [through_view, at_top, transposed]


def both(function, x_grad, w_grad):
    """(compiled results, eager results), each (outputs, x after the call, grads)."""
    results = []
    for compile_it in (True, False):
        leaf_x, w = double(3, 3, grad=x_grad), double(3, 3, grad=w_grad)
        x = leaf_x.clone() if x_grad else leaf_x
        call = compiled(function, [x, w]) if compile_it else function
        outputs = call(x, w)
        heads = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
        total = sum((o * (i + 2)).pow(2).sum() for i, o in enumerate(heads))
        grads = (
            torch.autograd.grad(total, [t for t, g in ((leaf_x, x_grad), (w, w_grad)) if g], allow_unused=True)
            if heads and (x_grad or w_grad)
            else ()
        )
        results.append((outputs, x, grads))
    return results


@pytest.mark.parametrize("grads", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("function", PURE + MUTATING)
def test_values_gradients_and_inputs(function, grads):
    got, want = both(function, *grads)
    assert [type(o) for o in got[0]] == [type(o) for o in want[0]]
    assert [getattr(o, "requires_grad", None) for o in got[0]] == [getattr(o, "requires_grad", None) for o in want[0]]
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_output_views_share_memory():
    x, w = double(3, 3), double(3, 3)
    y, flat, t = compiled(views_of_one, [x, w])(x, w)
    flat.zero_()
    assert y.abs().sum() == 0 and t.abs().sum() == 0
    same, _ = compiled(input_itself, [x, w])(x, w)
    assert same is x


@pytest.mark.parametrize("order", [2, 3])
def test_gradients_of_higher_order(order):
    found = []
    for compile_it in (True, False):
        x, w = double(3, 3, grad=True), double(3, 3, grad=True)
        function = lambda a, b: ((a @ b).tanh() * a.exp(),)
        (value,) = (compiled(function, [x, w]) if compile_it else function)(x, w)
        for _ in range(order):
            gx, gw = torch.autograd.grad(value.sum(), (x, w), create_graph=True)
            value = gx * gw
        found.append((gx.detach(), gw.detach()))
    torch.testing.assert_close(*found)


def test_retain_graph_and_part_of_the_outputs():
    x, w = double(3, 3, grad=True), double(3, 3, grad=True)
    a, b = compiled(lambda a, b: ((a * b).sin(), a.cos()), [x, w])(x, w)
    a.sum().backward(retain_graph=True)
    torch.testing.assert_close(x.grad, w * (x * w).cos())
    b.sum().backward()
    torch.testing.assert_close(x.grad, w * (x * w).cos() - x.sin())
    with pytest.raises(RuntimeError, match="second time"):
        b.sum().backward()


def test_hook_of_an_output_not_in_this_backward():
    x, w = double(3, 3, grad=True), double(3, 3, grad=True)
    a, b = compiled(lambda a, b: ((a * b).sin(), a.cos()), [x, w])(x, w)
    seen = []
    a.register_hook(lambda g: seen.append(g))
    b.retain_grad()
    b.sum().backward(retain_graph=True)
    assert not seen and torch.equal(b.grad, torch.ones_like(b)) and not a._is_view()
    a.sum().backward()
    assert len(seen) == 1


def test_outputs_are_changed_and_detached_in_place():
    x, w = double(3, 3, grad=True), double(3, 3, grad=True)
    a, b = compiled(lambda a, b: (a.sin() * b, a.cos()), [x, w])(x, w)
    a.mul_(2)
    b.detach_()
    a.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.cos() * w)
    torch.testing.assert_close(w.grad, 2 * x.sin())


def test_strided_tangents():
    x = double(4, 3, grad=True)
    (y,) = compiled(lambda a: (a.exp(),), [x])(x)
    (grad,) = torch.autograd.grad(y, x, double(3, 4).t())
    torch.testing.assert_close(grad, double(3, 4).t() * x.exp())


def test_duplicate_arguments():
    x = double(3, 3, grad=True)
    (y,) = compiled(lambda a, b: (a * b,), [x, x])(x, x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 2 * x)


def test_saved_tensor_changed_is_an_error():
    x, w = double(3, 3, grad=True), double(3, 3)
    (y,) = compiled(lambda a, b: (a * b,), [x, w])(x, w)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


def test_an_lstm_keeps_what_its_backward_needs():
    module = torch.nn.LSTM(3, 4)
    names = [name for name, _ in module.named_parameters()]
    parameters = [p.detach().clone().requires_grad_() for p in module.parameters()]

    def run(x, *weights):
        return (torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x,))[0],)

    x = torch.linspace(-1, 1, 24).reshape(4, 2, 3)
    found = compiled(run, [x, *parameters])(x, *parameters)[0]
    expected = run(x, *parameters)[0]
    torch.testing.assert_close(found, expected)
    tangent = torch.linspace(-1, 2, expected.numel()).reshape(expected.shape)
    mine, theirs = (torch.autograd.grad(out, parameters, tangent) for out in (found, expected))
    torch.testing.assert_close(mine, theirs)
