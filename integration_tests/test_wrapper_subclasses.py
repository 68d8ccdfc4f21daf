"""Tensors of wrapper subclasses in one graph, against eager: types, values, gradients, memory that is shared, what is written to."""

import pytest
import torch
import torch.nn.functional as F
import tracework
from wrapper_subclasses import Asked, Scaled, Two, plain, two

OPERATIONS = {
    "arithmetic": lambda t: (t * 2 + 1 - t / 3) ** 2,
    "product": lambda t: t @ t.t(),
    "product with its own view": lambda t: t[:2] @ t.mT,
    "functions": lambda t: torch.nn.functional.gelu(t).softmax(-1).cumsum(0),
    "reductions": lambda t: (t.sum(), t.mean(0), t.amax(-1, keepdim=True), t.var(1)),
    "several results": lambda t: (*t.split(2), *t.unbind(1)[:2], t.max(0).values),
    "views": lambda t: (t.reshape(-1), t.t(), t[1:, ::2], t.unsqueeze(0).expand(2, -1, -1), t.view(2, -1)),
    "parts": lambda t: (t.a + 1, t.b.sum(), t.a @ t.b.t()),
    "its own parts": lambda t: (t.a, t.b),
    "facts": lambda t: (
        t * len(t.shape),
        t.shape,
        t.dtype,
        t.device,
        t.ndim,
        t.stride(),
        isinstance(t, Two),
        type(t) is Two,
        t.numel(),
    ),
    "itself": lambda t: (t, t * 1, t),
    "made of parts": lambda t: Two(t.a * 2, t.b) + 1,
    "made and left": lambda t: Two(t.b.sin(), t.a.cos()),
    "mixed numbers": lambda t: torch.where(t > 0, t, 0.5) + torch.ones_like(t) + t.new_zeros(t.shape),
    "concatenated": lambda t: torch.cat([t, t * 2]).clone().contiguous(),
    "layer": lambda t: F.layer_norm(t, (t.shape[-1],)) + F.dropout(t, 0.5, training=False),
    "in a list": lambda t: [t * n for n in range(3)],
    "in a dict": lambda t: {"one": t + 1, "two": (t.a, t - 1)},
    "control flow": lambda t: t + 1 if t.shape[0] > 2 else t - 1,
    "complex": lambda t: torch.view_as_real(torch.view_as_complex(t.reshape(-1, 2).contiguous())),
    "conversion": lambda t: (t.double(), t.to(torch.bfloat16), t.half().float()),
    "detached": lambda t: (t.detach() * 2, t.data + 1),
    "clone written to": lambda t: t.clone().mul_(2).add_(t),
    "item of a new one": lambda t: torch.stack([t, t])[0][1],
    "no gradients": lambda t: torch.no_grad()(lambda x: x * 3)(t) + t,
}
CALLS = 2


def assert_same(found, expected):
    """The same classes, values, dtypes, strides, and wish for gradients."""
    assert type(found) is type(expected)
    if isinstance(expected, (Two, Scaled)):
        assert (found.shape, found.dtype, found.stride(), found.requires_grad) == (
            *(expected.shape, expected.dtype, expected.stride(), expected.requires_grad),
        )
        for name in expected.__tensor_flatten__()[0]:
            assert_same(getattr(found, name).detach(), getattr(expected, name).detach())
    elif isinstance(expected, torch.Tensor):
        assert found.requires_grad == expected.requires_grad and found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, equal_nan=True)
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert_same(a, b)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    else:
        assert found == expected


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [leaf for item in items for leaf in leaves(item)]


@pytest.fixture(autouse=True)
def fresh():
    tracework.reset()


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_one_graph(name):
    operation = OPERATIONS[name]
    call = tracework.compile(operation, fullgraph=True, dynamic=False)
    for _ in range(CALLS):
        assert_same(call(two(4, 6)), operation(two(4, 6)))


@pytest.mark.filterwarnings("error::tracework.UncompiledWarning")
@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_are_of_the_class(name):
    operation = OPERATIONS[name]
    call = tracework.compile(operation, dynamic=False)

    def trained(function):
        t = two(4, 6).requires_grad_()
        found = function(t)
        results = [leaf for leaf in leaves(found) if leaf.requires_grad and leaf.is_floating_point() and leaf is not t]
        for result in results:
            weight = torch.ones_like(result) * 0.5
            result.backward(weight, retain_graph=True)
        return found, t.grad

    for _ in range(CALLS):
        assert_same(trained(call), trained(operation))


def scaled(kind=Scaled, rows=5, width=6, seed=2):
    return kind.of(plain(rows, width, seed=seed))


LAYERS = {
    "product": lambda w, x: x @ w.t(),
    "linear": lambda w, x: F.linear(x, w),
    "linear with a bias": lambda w, x: F.linear(x, w, x[0, : w.shape[0]]).relu(),
    "embedding": lambda w, x: F.embedding(torch.tensor([0, 3, 1]), w) + x[:3, :1],
    "whole": lambda w, x: w.whole() + x[0],
    "its numbers": lambda w, x: w.numbers.float().sum() + x,
    "made inside": lambda w, x: F.linear(x, type(w)(w.numbers, w.scale * 2, w.dtype)),
    "quantised inside": lambda w, x: F.linear(x, type(w).of(x)),
    "given back": lambda w, x: (w, x + 1),
    "a new one leaves": lambda w, x: (type(w).of(x * 2), x),
}


@pytest.mark.parametrize("kind", [Scaled, Asked])
@pytest.mark.parametrize("name", LAYERS)
def test_quantised_weights(name, kind):
    function = LAYERS[name]
    call = tracework.compile(function, fullgraph=True)
    for seed in range(CALLS):
        given = scaled(kind, seed=seed), plain(7, 6, seed=seed + 5)
        assert_same(call(*given), function(*given))


@pytest.mark.parametrize("kind", [Scaled, Asked])
def test_gradients_flow_past_quantised_weights(kind):
    weight = scaled(kind)

    def trained(function):
        x = plain(7, 6).requires_grad_()
        found = function(x)
        found.square().sum().backward()
        return found, x.grad

    function = lambda x: F.linear(x * 2, weight).sigmoid()
    call = tracework.compile(function, fullgraph=True)
    for _ in range(CALLS):
        assert_same(trained(call), trained(function))


@pytest.mark.parametrize("kind", [Scaled, Asked])
def test_the_gradient_of_a_quantised_weight_is_a_plain_tensor(kind):
    """None of its parts may have it: numbers of eight bits, and scales of other sizes."""
    function = lambda w, x: (x * 2 @ w.t()).sigmoid()

    def trained(call):
        weight, x = scaled(kind).requires_grad_(), plain(7, 6).requires_grad_()
        found = call(weight, x)
        found.square().sum().backward()
        return found, weight.grad, x.grad

    call = tracework.compile(function, fullgraph=True)
    for _ in range(CALLS):
        assert_same(trained(call), trained(function))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 4)
        for layer in (self.first, self.second):
            layer.weight = torch.nn.Parameter(Two(layer.weight.detach(), layer.weight.detach() * 2))
            layer.bias = torch.nn.Parameter(Two(layer.bias.detach(), layer.bias.detach() - 1))

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_a_module_is_trained():
    def trained(compiled):
        torch.manual_seed(0)
        module = Layer()
        call = tracework.compile(module, fullgraph=True) if compiled else module
        optimizer = torch.optim.SGD(module.parameters(), 0.1, foreach=False)
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            loss = call(plain(3, 6, seed=step)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.grad for p in module.parameters()], [p.detach() for p in module.parameters()]

    assert_same(trained(True), trained(False))


def test_writes_reach_the_parts():
    def function(t, x):
        t.mul_(2)
        t.a.add_(x)
        return t + 1

    call = tracework.compile(function)
    for _ in range(CALLS):
        mine, expected = two(4, 6), two(4, 6)
        parts = mine.a, mine.b
        assert_same(call(mine, plain(4, 6)), function(expected, plain(4, 6)))
        assert_same(mine, expected)
        assert mine.a is parts[0] and mine.b is parts[1]


def test_views_that_leave_share_memory():
    function = lambda t: (t[1:], t.t())
    call = tracework.compile(function, fullgraph=True)
    for _ in range(CALLS):
        t = two(4, 6)
        tail, turned = call(t)
        t.a.fill_(7)
        assert bool((tail.a == 7).all()) and bool((turned.a == 7).all())


def test_what_the_class_keeps_is_guarded():
    """A context of another value, other parts and another class are compiled anew."""
    function = lambda w, x: F.linear(x, w)
    call = tracework.compile(function, fullgraph=True)
    x = plain(7, 6)
    weights = [scaled(), scaled(Asked), Scaled(scaled().numbers, scaled().scale, torch.float64), scaled(rows=3), two(5, 6)]
    for weight in [*weights, *weights]:
        given = x.double() if weight.dtype is torch.float64 else x
        assert_same(call(weight, given), function(weight, given))


def test_nested_wrappers():
    function = lambda t, x: (x @ t.t()).relu() + t.a.sum()
    call = tracework.compile(function, fullgraph=True)
    for seed in range(CALLS):
        t = Two(two(4, 6, seed=seed), two(4, 6, seed=seed + 9))
        assert_same(call(t, plain(3, 6)), function(t, plain(3, 6)))


def test_a_break_hands_one_over():
    def function(t):
        u = t * 2
        print("", end="")
        return u + t.a.sum()

    call = tracework.compile(function)
    for _ in range(CALLS):
        assert_same(call(two(4, 6)), function(two(4, 6)))


def test_without_gradients_a_parameter_still_wants_some():
    weight = torch.nn.Parameter(two(4, 6))
    function = torch.no_grad()(lambda x: (x @ weight.t(), weight.requires_grad, weight))
    call = tracework.compile(function)
    for _ in range(CALLS):
        found, expected = call(plain(3, 6)), function(plain(3, 6))
        assert_same(found[0], expected[0])
        assert found[1] is True and found[2] is weight
