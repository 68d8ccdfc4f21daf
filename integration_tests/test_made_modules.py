"""Modules and parameters that the compiled function makes or puts into existing modules: values, gradients, and what is there afterwards."""

import pytest
import torch
import tracework
from torch import nn
from training import detached, same


class Scaled(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(n))
        self.register_buffer("shift", torch.zeros(n))
        self.inner = nn.Linear(n, n)

    def forward(self, x):
        return self.inner(x * self.scale + self.shift)


def linear(given, x):
    return nn.Linear(4, 2)(x)


def sequence(given, x):
    made = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    return made(x), len(made), [name for name, _ in made.named_parameters()]


def own_class(given, x):
    made = Scaled(4)
    y = made(x)
    return y, list(made.state_dict().values()), list(made.parameters()), made


def containers(given, x):
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
    heads = nn.ModuleDict({"a": nn.Linear(4, 3)})
    for layer in layers:
        x = layer(x)
    return heads["a"](x), nn.Embedding(5, 3)(torch.tensor([1, 2]))


def evaluating(given, x):
    made = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval().requires_grad_(False)
    return made(x), made.training


def initialised(given, x):
    made = nn.Linear(4, 4)
    made.apply(lambda module: nn.init.constant_(module.weight, 0.5))
    return made(x)


def other_weight(given, x):
    given.weight = nn.Parameter(torch.full((4, 4), 0.5))
    return given(x)


def other_entries(given, x):
    given.register_buffer("kept", x.detach())
    given.kept = x.detach() + 1
    given.register_parameter("extra", None)
    given.extra = nn.Parameter(torch.ones(4))
    del given.bias
    given.bias = None
    return given(x) + given.extra, list(given._parameters), list(given._buffers), given.kept * 1


def other_children(given, x):
    given.add_module("child", nn.Linear(4, 4))
    first = given.child(x)
    given.child = nn.Tanh()
    return first, given.child(x), [type(child) for child in given.children()], len(list(given.modules()))


def loaded(given, x):
    given.load_state_dict({"weight": torch.ones(4, 4), "bias": torch.zeros(4)})
    return given(x), list(given.state_dict())


def assigned_data(given, x):
    given.weight.data = torch.full((4, 4), 0.5)
    given.bias.data = given.bias.data + 1
    return given(x), given.weight * 2


def from_a_vector(given, x):
    nn.utils.vector_to_parameters(torch.arange(20.0) / 10, given.parameters())
    return given(x), nn.utils.parameters_to_vector(given.parameters()) * 2


def other_dtype(given, x):
    return given.double()(x.double())


def parameter(given, x):
    made = nn.Parameter(torch.ones(4))
    return (made * x).sum(), made


class WithBuffers(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Buffer(weight)
        self.passing = nn.Buffer(weight + 1, persistent=False)

    def forward(self, x):
        return x * self.weight + self.passing


def buffers(given, x):
    made = WithBuffers(torch.arange(4.0))
    given.more = nn.Buffer(torch.full((4,), 2.0))
    given.more = given.more + 1
    kinds = [isinstance(t, nn.Buffer) for t in (made.weight, x, given.more)]
    return made(x) * given.more, list(made.state_dict()), [n for n, _ in made.named_buffers()], kinds, list(given._buffers)


def observed(fn, wrap):
    """Results, and after backward the gradients of the inputs, of all that the given module holds then, and of parameters that leave."""
    torch.manual_seed(0)
    given, x = nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
    found = wrap(fn)(given, x)
    found = list(found) if isinstance(found, tuple) else [found]
    if found[0].requires_grad:
        (found[0] * torch.arange(found[0].numel()).reshape(found[0].shape)).sum().backward()
    modules = [given] + [f for f in found if isinstance(f, nn.Module)]
    left = [p for f in found for p in (f if isinstance(f, list) else [f]) if isinstance(p, nn.Parameter)]
    shown = [type(f).__name__ if isinstance(f, nn.Module) else f for f in found]
    held = [[(n, t, t.grad) for n, t in [*m.named_parameters(), *m.named_buffers()]] for m in modules]
    return detached([shown, x.grad, held, [p.grad for p in left], [list(m.__dict__) for m in modules]])


PROGRAMS = (
    linear,
    sequence,
    own_class,
    containers,
    evaluating,
    initialised,
    other_weight,
    other_entries,
    other_children,
    loaded,
    assigned_data,
    from_a_vector,
    other_dtype,
    parameter,
    buffers,
)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_one_graph_as_eager(fn, backend):
    expected = observed(fn, lambda fn: fn)
    same(observed(fn, lambda fn: tracework.compile(fn, backend=backend, fullgraph=True)), expected)


def test_the_whole_stack():
    fn = lambda given, x: (nn.Linear(4, 2)(x), other_entries(given, x)[0])
    same(observed(fn, lambda fn: tracework.compile(fn, fullgraph=True)), observed(fn, lambda fn: fn))


def test_a_module_that_leaves_works_on():
    fast = tracework.compile(lambda x: Scaled(4), backend="eager", fullgraph=True)
    first, second = fast(torch.ones(1)), fast(torch.ones(1))
    assert type(first) is Scaled and first is not second and first.scale is not second.scale
    assert list(first.state_dict()) == list(Scaled(4).state_dict())
    first(torch.ones(2, 4)).sum().backward()
    assert first.scale.grad is not None and second.scale.grad is None


def lazy_net():
    stages = [nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), *(nn.LazyLinear(4) for _ in range(12))]
    return nn.Sequential(*stages)


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: lambda x: net(x)], ids=["module", "function"])
def test_lazy_modules_get_their_parameters_while_tracing(wrap):
    def run(compile_it):
        torch.manual_seed(0)
        net = lazy_net()
        fast, x = compile_it(wrap(net)), torch.ones(2, 1, 5, 5)
        found = [fast(x), fast(x + 1)]
        found[1].sum().backward()
        return detached([found, [type(m) for m in net], [p.grad for p in net.parameters()], list(net.state_dict())])

    same(run(lambda fn: tracework.compile(fn, backend="eager", fullgraph=True)), run(lambda fn: fn))


def test_a_lazy_module_itself():
    made = tracework.compile(nn.LazyLinear(4), backend="eager", fullgraph=True)
    assert made(torch.ones(2, 3)).shape == (2, 4) and made.weight.shape == (4, 3)


def test_lazy_modules_after_random_numbers_draw_in_order():
    def fn(net, x):
        return net(torch.rand_like(x))

    results = []
    for call in (fn, tracework.compile(fn, backend="eager")):
        torch.manual_seed(0)
        results.append(call(nn.LazyLinear(4), torch.ones(2, 3)).detach())
    same(*results)


def test_modules_are_made_after_torch_compile_was_used():
    """It leaves another nn.Module.__init__ in the process."""
    before = nn.Module.__init__
    try:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
        assert tracework.compile(lambda x: nn.Linear(4, 2)(x), backend="eager", fullgraph=True)(torch.ones(3, 4)).shape == (3, 2)
    finally:
        nn.Module.__init__ = before


def test_a_lazy_module_is_of_its_own_class_once_it_is_made():
    """So is the compiled one, as the module itself is."""
    original = nn.LazyLinear(4)
    made = tracework.compile(original, backend="eager")
    x = torch.ones(2, 3)
    first = made(x)
    assert type(original) is nn.Linear
    assert [kind for kind in type(made).__mro__ if kind.__module__ == "torch.nn.modules.linear"] == [type(made), nn.Linear]
    assert type(made).__name__ == "Linear" and repr(made) == repr(original)
    torch.testing.assert_close(made(x), first)
    torch.testing.assert_close(first, original(x))
    nested = nn.Sequential(tracework.compile(nn.LazyLinear(4), backend="eager"))
    tracework.compile(nested, backend="eager")(x)
    assert isinstance(nested[0], nn.Linear) and nested[0].weight.shape == (4, 3)
    torch.testing.assert_close(tracework.compile(nested, backend="eager")(x), nested(x))
