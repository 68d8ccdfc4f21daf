"""The entry point: forms of call, arguments, errors, and that a compiled module is the same module to its user."""

import copy
import pickle

import pytest
import torch
import tracework


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


def test_forms_of_call():
    x = torch.randn(3)

    @tracework.compile
    def bare(x):
        return x.sin() + 1

    @tracework.compile(fullgraph=True, backend="aot_eager")
    def with_arguments(x):
        return x.sin() + 1

    class Holder:
        offset = 1

        @tracework.compile(backend="eager")
        def method(self, x):
            return x.sin() + self.offset

    called = tracework.compile(lambda x: x.sin() + 1)
    for f in (bare, with_arguments, called, Holder().method):
        torch.testing.assert_close(f(x), x.sin() + 1)
    assert bare.__name__ == "bare"


def test_compiled_module_is_the_same_module():
    net = Net()
    compiled = tracework.compile(net, backend="eager")
    assert isinstance(compiled, Net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert compiled.linear is net.linear
    compiled.scale = 3.0
    assert net.scale == 3.0
    compiled.eval()
    assert not net.training
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), net(x))
    plain = Net()
    plain.load_state_dict(compiled.state_dict())
    compiled.load_state_dict(plain.state_dict())
    assert {id(p) for p in compiled.parameters()} == {id(p) for p in net.parameters()}


def test_hooks_run_and_see_the_output():
    net = Net()
    seen = []
    net.register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape)))
    compiled = tracework.compile(net, backend="eager")
    compiled(torch.randn(2, 4))
    compiled(torch.randn(2, 4))
    assert seen == [(2, 4), (2, 4)]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_are_compiled_and_independent(duplicate):
    compiled = tracework.compile(Net(), backend="eager")
    twin = duplicate(compiled)
    with torch.no_grad():
        twin.linear.weight.zero_()
        twin.linear.bias.fill_(1)
    x = torch.randn(2, 4)
    torch.testing.assert_close(twin(x), torch.full((2, 4), 2.0))
    assert compiled.linear.weight.abs().sum() > 0


class WithCompiledMethod(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.fast = tracework.compile(self.scaled, backend="eager")

    def scaled(self, x):
        return x * self.weight

    def forward(self, x):
        return self.fast(x)


def test_a_copy_of_a_module_that_keeps_a_compiled_method_of_its_own():
    module = WithCompiledMethod()
    module(torch.ones(3))
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.weight.fill_(3)
    assert twin(torch.ones(3)).tolist() == [3, 3, 3] and module(torch.ones(3)).tolist() == [1, 1, 1]
    assert twin.fast.__wrapped__.__self__ is twin


class Chain(torch.nn.Sequential):
    """Makes others of its class, as copies and slices do."""

    def first(self):
        return self.__class__(self[0]), type(self)(self[0])


def test_what_a_compiled_module_makes_of_its_class_is_the_users():
    chain = Chain(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    compiled = tracework.compile(chain, backend="eager")
    x = torch.randn(2, 4)
    assert compiled(x).shape == (2, 2) and compiled.__class__ is Chain
    for part in (*compiled.first(), compiled[:1]):
        assert type(part) is Chain
        torch.testing.assert_close(part(x), chain[0](x))
    replica = compiled._replicate_for_data_parallel()
    assert type(replica) is Chain


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return weight * 2


def test_a_compiled_module_is_parametrized():
    linear = torch.nn.Linear(4, 4)
    compiled = tracework.compile(linear, backend="eager")
    x = torch.randn(2, 4)
    before = compiled(x)
    torch.nn.utils.parametrize.register_parametrization(compiled, "weight", Doubled())
    torch.testing.assert_close(compiled.weight, linear.parametrizations.weight.original * 2)
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, compiled.weight, compiled.bias))
    assert not torch.equal(compiled(x), before) and type(copy.deepcopy(compiled)) is not type(linear)
    torch.nn.utils.parametrize.remove_parametrizations(compiled, "weight")
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, linear.weight, linear.bias))


@pytest.mark.parametrize("is_called_before", [False, True])
def test_symbolic_trace_goes_through_a_compiled_module(is_called_before):
    inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    outer = torch.nn.Sequential(tracework.compile(inner, backend="eager"), torch.nn.Linear(3, 2))
    x = torch.randn(2, 3)
    expected = outer(x) if is_called_before else outer[1](inner(x))
    traced = torch.fx.symbolic_trace(outer)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["0.0", "0.1", "1"]
    torch.testing.assert_close(traced(x), expected)
    torch.testing.assert_close(outer(x), expected)


def test_in_place():
    net = Net()
    x = torch.randn(2, 4)
    expected = net(x)
    tracework.compile_in_place(net, backend="eager")
    torch.testing.assert_close(net(x), expected)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (dict(mode="fastest"), tracework.UnknownName, "mode 'fastest'"),
        (dict(backend="inductr"), tracework.UnknownName, "Did you mean 'inductor'"),
        (dict(options={"no_such": 1}), tracework.UnknownName, "option 'no_such'"),
        (dict(options={"cache": "yes"}), tracework.InvalidArgument, "True or False"),
        (dict(mode="default", options={"cache": True}), tracework.InvalidArgument, "both given"),
        (dict(fullgraph="yes"), tracework.InvalidArgument, "fullgraph="),
        (dict(backend=3), tracework.InvalidArgument, "backend="),
        (dict(shapes_spec={}, dynamic=True), tracework.InvalidArgument, "shapes_spec="),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments, error, words):
    with pytest.raises(error, match=words):
        tracework.compile(lambda x: x, **arguments)


def test_not_callable():
    with pytest.raises(tracework.NotCallable, match="not int"):
        tracework.compile(3)


def test_backend_callable_and_registry():
    graphs = []

    def mine(gm, example_inputs):
        graphs.append((gm, example_inputs))
        return gm.forward

    x = torch.randn(3)
    torch.testing.assert_close(tracework.compile(lambda x: x * 2, backend=mine)(x), x * 2)
    assert len(graphs) == 1 and isinstance(graphs[0][0], torch.fx.GraphModule)
    tracework.register_backend(mine, name="mine_of_this_test")
    assert "mine_of_this_test" in tracework.list_backends()
    torch.testing.assert_close(tracework.compile(lambda x: x * 3, backend="mine_of_this_test")(x), x * 3)


def test_disable_is_honoured():
    graphs = []

    @tracework.disable
    def plain(x):
        return x * 5

    def f(x):
        return plain(x + 1) + 2

    def backend(gm, _):
        graphs.append(gm)
        return gm.forward

    x = torch.randn(3)
    torch.testing.assert_close(tracework.compile(f, backend=backend)(x), (x + 1) * 5 + 2)
    assert len(graphs) == 2


def test_is_compiling_is_answered_while_capturing():
    def f(x):
        return x + 1 if torch.compiler.is_compiling() else x - 1

    x = torch.randn(3)
    torch.testing.assert_close(tracework.compile(f, backend="eager")(x), x + 1)
    torch.testing.assert_close(f(x), x - 1)


def test_replace_torch_compile():
    def f(x):
        return x.cos()

    original = torch.compile
    x = torch.randn(3)
    with tracework.replace_torch_compile():
        torch.testing.assert_close(torch.compile(f, backend="eager")(x), x.cos())
    assert torch.compile is original


def test_two_devices_are_named():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(tracework.MixedDevices, match="cpu, meta"):
        tracework.compile(net)


def test_options_are_listed():
    assert "cudagraphs" in tracework.list_options()
    assert tracework.list_mode_options("reduce-overhead") == {"cudagraphs": True}


class Named(torch.nn.Module):
    def forward(self, x, *, other=1):
        return x + other


def test_messages_and_sources_name_the_arguments_of_forward():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = tracework.compile(Named(), backend=backend, options={"dynamic_sources": "x"})
    for size in (3, 5, 7):
        assert compiled(torch.ones(size)).shape == (size,)
    assert len(graphs) == 1

    fixed = tracework.compile(Named(), backend=backend, dynamic=False, recompile_limit=2)
    with pytest.warns(match=r"x has size 5 in dim 0, had 3"):
        for size in (3, 4, 5, 6):
            fixed(torch.ones(size), other=2)
