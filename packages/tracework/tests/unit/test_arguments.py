"""compile() refuses what it cannot use before anything is compiled, and takes every form of callable."""

import copy
import functools
import gc
import inspect
import os
import pickle
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
import tracework
from tracework import assemble

BAD = [
    (dict(mode="fastest"), tracework.UnknownName, "unknown mode 'fastest'"),
    (dict(mode="max-autotun"), tracework.UnknownName, "Did you mean 'max-autotune'"),
    (dict(backend="inductr"), tracework.UnknownName, "Did you mean 'inductor'"),
    (dict(backend=3), tracework.InvalidArgument, "backend="),
    (dict(options={"no_such": 1}), tracework.UnknownName, "option 'no_such'"),
    (dict(options={"cache": "yes"}), tracework.InvalidArgument, "True or False"),
    (dict(options={"guard_filter_fn": 1}), tracework.InvalidArgument, "a callable or None"),
    (dict(options={"cxx": "no-such-compiler"}), tracework.MissingCompiler, "no-such-compiler"),
    (dict(mode="default", options={"cache": True}), tracework.InvalidArgument, "both given"),
    (dict(options=[1]), tracework.InvalidArgument, "a dict of options"),
    (dict(options={"partitioner": "half"}), tracework.InvalidArgument, "one of default, min_cut, not 'half'"),
    (dict(options={"profile": "half"}), tracework.InvalidArgument, "'profile' takes one of"),
    (dict(options={"memory_budget": 1.5}), tracework.InvalidArgument, "from 0 to 1, not 1.5"),
    (dict(options={"memory_budget": float("nan")}), tracework.InvalidArgument, "from 0 to 1, not nan"),
    (dict(options={"memory_budget": 0.5, "partitioner": "default"}), tracework.InvalidArgument, "is for partitioner 'min_cut'"),
    (dict(options={"dump_dir": "/dev/null/folder"}), tracework.InvalidArgument, "can be written"),
    (dict(name=3), tracework.InvalidArgument, "name="),
    (dict(observe=3), tracework.InvalidArgument, "observe="),
    (dict(recompile_limit=True), tracework.InvalidArgument, "recompile_limit="),
    (dict(fullgraph="yes"), tracework.InvalidArgument, "fullgraph="),
    (dict(dynamic="yes"), tracework.InvalidArgument, "dynamic="),
    (dict(disable=None), tracework.InvalidArgument, "disable="),
    (dict(recompile_limit=0), tracework.InvalidArgument, "recompile_limit="),
    (dict(shapes_spec={}, dynamic=True), tracework.InvalidArgument, "shapes_spec="),
    (dict(dynamic_shapes={}, dynamic=False), tracework.InvalidArgument, "shapes_spec="),
    (dict(dynamic_shapes={}, shapes_spec={}), tracework.InvalidArgument, "two names"),
]


def counting():
    """A backend that runs graphs as they are, and the list of graphs it was given."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return backend, graphs


@pytest.mark.parametrize(("arguments", "error", "words"), BAD)
def test_bad_arguments_are_refused_at_once(arguments, error, words):
    with pytest.raises(error, match=words):
        tracework.compile(lambda x: x, **arguments)


@pytest.mark.parametrize("thing", [3, "x", torch.ones(2)], ids=["int", "str", "tensor"])
def test_what_cannot_be_called(thing):
    with pytest.raises(tracework.NotCallable, match=type(thing).__name__):
        tracework.compile(thing)
    with pytest.raises(tracework.NotCallable, match=type(thing).__name__):
        tracework.disable(thing)
    with pytest.raises(tracework.NotCallable, match=type(thing).__name__):
        tracework.explain(thing)
    with pytest.raises(tracework.NotCallable, match=type(thing).__name__):
        tracework.compiler.nested_compile_region(thing)
    with pytest.raises(tracework.NotCallable, match="decorates a function"):
        tracework.compiler.dynamic_spec({})(thing)


@pytest.mark.parametrize(("backend", "name"), [(3, "three"), (lambda gm, inputs: gm, 3)])
def test_what_is_registered_is_a_backend_under_a_name(backend, name):
    with pytest.raises(tracework.InvalidArgument, match="register"):
        tracework.register_backend(backend, name=name)
    assert tracework.list_backends()


def test_errors_are_also_of_the_builtin_kind():
    assert issubclass(tracework.InvalidArgument, ValueError)
    assert issubclass(tracework.NotCallable, TypeError)
    assert issubclass(tracework.CompileError, RuntimeError)


def test_a_script_module_is_refused():
    with pytest.raises(tracework.InvalidArgument, match="ScriptModule"):
        tracework.compile(torch.jit.script(torch.nn.Linear(2, 2)))


def test_two_devices_are_named():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta"))
    for compile in (tracework.compile, tracework.compile_in_place):
        with pytest.raises(tracework.MixedDevices, match="cpu, meta"):
            compile(net)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: (x + 1, y + 1),
        lambda x, y: (x.add_(1), y.add_(1)),
        lambda x, y: (y * x[0], y.copy_(x)),
        lambda x, y: (x.view(y.shape) * 2,),
        lambda x, y: (torch.empty_like(y, device="cpu").zero_() + x, x.to("meta") @ y),
    ],
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_graph_with_tensors_without_data_beside_others_runs_uncompiled(fn, requires_grad):
    mine, theirs = ([torch.ones(2, device=d, requires_grad=requires_grad) * 1 for d in ("cpu", "meta")] for _ in range(2))
    tracework.reset()  # the same line was told of before
    with pytest.warns(tracework.UncompiledWarning, match="a tensor on device meta"):
        results = tracework.compile(fn)(*mine)
    for found, expected in zip(results, fn(*theirs), strict=True):
        assert (found.device, found.shape, found.requires_grad) == (expected.device, expected.shape, expected.requires_grad)
        if found.device.type == "cpu":
            torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine[0], theirs[0])


WITHOUT_COMPILER = """
import sys, warnings, torch, tracework
from tracework_runtime import counters
sys.modules["ziglang"] = None  # a compiler that is a package, and so not on the path
f, g = (lambda x: (x.sin() * 2).sum(-1)), (lambda x: x.cos() + 1)
x = torch.randn(3, 4, requires_grad=True)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for function in (f, g) if sys.argv[1] == "without" else (f,):
        tracework.compile(function, fullgraph=True)(x).sum().backward()
        given, x.grad = x.grad, None
        function(x).sum().backward()
        torch.testing.assert_close(given, x.grad)
        x.grad = None
print([str(w.message) for w in told], counters().get("cache.artifact.hit", 0))
if sys.argv[1] == "without":
    for refused in (lambda: tracework.compile(f, options={"cxx": "no-such"}), lambda: tracework.aot_compile(f, (x,))):
        try:
            refused()
        except tracework.MissingCompiler:
            print("refused")
"""


def test_without_a_compiler_programs_run_by_what_is_stored_and_by_operators(tmp_path):
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p), "HOME": str(tmp_path)}
    said = {}
    for how, path in (("with", os.environ["PATH"]), ("without", str(tmp_path))):
        command = [sys.executable, "-c", WITHOUT_COMPILER, how]
        done = subprocess.run(command, capture_output=True, text=True, env={**environment, "PATH": path}, timeout=300)
        assert done.returncode == 0, done.stderr
        said[how] = done.stdout.splitlines()
    assert said["with"] == ["[] 0"]
    warned, *refused = said["without"]
    assert warned.endswith("] 2.0") and warned.count("no C++ compiler: looked for g++, c++, clang++, ziglang") == 1
    assert (
        "at <lambda> (<string>:5), and elsewhere" in warned
        and "tracework-runtime[ziglang]" in warned
        and refused == ["refused"] * 2
    )


def test_signature_name_and_documentation_are_the_functions_own():
    def f(x, *rest, k=1, **more):
        """What it does."""
        return x

    compiled = tracework.compile(f)
    assert (compiled.__name__, compiled.__qualname__, compiled.__doc__) == (f.__name__, f.__qualname__, f.__doc__)
    assert compiled.__module__ == __name__
    assert inspect.signature(compiled) == inspect.signature(f)


@tracework.compile(backend="eager")
def at_module_level(x):
    return x + 1


def test_compiled_functions_are_copied_and_pickled_as_functions_are():
    net = torch.nn.Linear(2, 2)
    net.act = at_module_level
    assert copy.deepcopy(net).act is at_module_level
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level


class Callable:
    def __init__(self):
        self.factor = 3

    def __call__(self, x):
        return x * self.factor

    def method(self, x):
        return x * self.factor


@pytest.mark.parametrize(
    "callable_",
    [Callable(), Callable().method, functools.partial(lambda x, k: x * k, k=3), functools.partial(torch.mul, other=3)],
    ids=["object", "method", "partial", "partial of C"],
)
def test_callables_are_captured(callable_):
    backend, graphs = counting()
    torch.testing.assert_close(tracework.compile(callable_, backend=backend)(torch.ones(3)), torch.full((3,), 3.0))
    assert len(graphs) == 1


def test_a_function_of_torch_is_captured():
    backend, graphs = counting()
    torch.testing.assert_close(tracework.compile(torch.sin, backend=backend)(torch.ones(3)), torch.ones(3).sin())
    assert len(graphs) == 1


class Scale(torch.nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), factor))

    def forward(self, x):
        return (x * self.weight).sin()

    def times(self, x, factor=3):
        return (x * factor).sin()

    @classmethod
    def halved(cls, x):
        return x.sin() / 2


class Shift:
    by = 2

    def __call__(self, x):
        return (x + self.by).sin()

    def back(self, x):
        return (x - self.by).sin()


def closure(factor):
    return lambda x: (x * factor).sin()


SCALE, SHIFT, DOUBLED = Scale(), Shift(), closure(2)
MADE_FOR_EACH_CALL = {
    "function": lambda: DOUBLED,
    "closure": lambda: closure(3),
    "module": lambda: SCALE,
    "module's forward": lambda: SCALE.forward,
    "method of a module": lambda: SCALE.times,
    "class method": lambda: Scale.halved,
    "object": lambda: SHIFT,
    "method of an object": lambda: SHIFT.back,
    "partial": lambda: functools.partial(SCALE.times, factor=4),
    "partial of a partial": lambda: functools.partial(functools.partial(Scale.times, SCALE), factor=5),
    "builtin": lambda: torch.sin,
}


@pytest.mark.parametrize("kind", MADE_FOR_EACH_CALL)
def test_what_is_compiled_where_it_is_called_is_compiled_once(kind):
    backend, graphs = counting()
    for _ in range(4):
        called, x = MADE_FOR_EACH_CALL[kind](), torch.rand(3)
        assert torch.equal(tracework.compile(called, backend=backend)(x), called(x))
    assert len(graphs) == 1


def test_partials_of_one_function_are_told_apart():
    backend, _ = counting()
    for factor in (2, 3, 4, 5, 2):
        called = functools.partial(SCALE.times, factor=factor)
        assert torch.equal(tracework.compile(called, backend=backend)(torch.ones(3)), called(torch.ones(3)))


def test_what_is_compiled_for_a_module_dies_with_it_and_is_told_apart_by_options():
    backend, graphs = counting()
    module = Scale()
    for arguments in ({}, {"dynamic": True}, {"dynamic": True}, {"fullgraph": True}):
        tracework.compile(module, backend=backend, **arguments)(torch.ones(3))
    assert len(graphs) == 3
    alive = weakref.ref(module), weakref.ref(module.weight)
    del module, graphs[:]
    gc.collect()
    assert alive[0]() is None and alive[1]() is None


def test_the_outer_compile_of_a_compiled_function_counts():
    backend, graphs = counting()
    tracework.compile(tracework.compile(lambda x: x + 1, backend="eager"), backend=backend)(torch.ones(3))
    assert len(graphs) == 1


def test_a_compiled_module_inside_of_a_compiled_module_is_part_of_the_graph():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    net[0] = tracework.compile(net[0], backend="eager")
    backend, graphs = counting()
    compiled = tracework.compile(net, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(2, 3)), net(torch.ones(2, 3)))
    assert len(graphs) == 1 and list(compiled.state_dict()) == ["0.weight", "0.bias"]


def test_disable_gives_the_function_or_module_back():
    net = torch.nn.Linear(2, 2)
    assert tracework.compile(net, disable=True) is net
    assert tracework.compile(len, disable=True) is len


@pytest.mark.parametrize("form", ["module", "class"])
def test_disabled_modules_run_uncompiled(form):
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2 if not torch.compiler.is_compiling() else x * 7

    if form == "class":
        tracework.disable(Net)
    net = Net() if form == "class" else tracework.disable(Net())
    assert isinstance(net, Net)
    backend, graphs = counting()
    got = tracework.compile(lambda x: net(x + 1) + 1, backend=backend)(torch.ones(2))
    torch.testing.assert_close(got, torch.full((2,), 5.0))
    assert len(graphs) == 2


def test_is_compiling_of_this_package_and_of_torch():
    def f(x):
        return x + 1 if tracework.is_compiling() and torch.compiler.is_compiling() else x - 1

    torch.testing.assert_close(tracework.compile(f, backend="eager", fullgraph=True)(torch.ones(2)), torch.full((2,), 2.0))
    torch.testing.assert_close(f(torch.ones(2)), torch.zeros(2))


def test_dump_dir_receives_every_stage(tmp_path):
    tracework.compile(lambda x: x.sin() + 1, options={"dump_dir": str(tmp_path / "d")})(torch.ones(3))
    stages = {p.stem.split("-")[1] for p in (tmp_path / "d").iterdir()}
    assert {"captured", "aotautograd", "primops", "inductor", "runtime"} <= stages
    (case,) = (tmp_path / "d").glob("*.case")
    assert tracework.Case.load(case).inputs[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_suppressed_failures_run_uncompiled(when, monkeypatch):
    def fail_at(graph, options, **given):
        if (graph.role == "backward") == (when == "backward"):
            raise NotImplementedError("no lowering")
        return real(graph, options, **given)

    real = assemble.inductor.compile_graph
    monkeypatch.setattr(assemble.inductor, "compile_graph", fail_at)
    x, y = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

    factor = len(when)  # graphs of their own: what an earlier case made is still in the process's cache

    def f(x):
        return (x.sin() * x * factor).sum()

    options = {"cache": False}
    with pytest.raises(tracework.CompileError, match="inductor could not compile the graph: .*no lowering"):
        tracework.compile(f, options=options)(y).backward()
    with pytest.warns(
        tracework.UncompiledWarning, match=f"the {when} failed: inductor could not compile the graph: .*no lowering"
    ):
        tracework.compile(f, options=options | {"suppress_errors": True})(x).backward()
    expected = factor * (x.detach().cos() * x.detach() + x.detach().sin())
    torch.testing.assert_close(x.grad, expected)


def test_forward_of_a_compiled_module_runs_compiled_and_keeps_its_signature():
    class Net(torch.nn.Module):
        def forward(self, x, *, scale=2):
            return x * scale

        def twice(self, x):
            return self.forward(self.forward(x))

    backend, graphs = counting()
    net = tracework.compile(Net(), backend=backend)
    x = torch.ones(3)
    assert torch.equal(net.forward(x), x * 2) and len(graphs) == 1
    assert torch.equal(net(x), x * 2) and torch.equal(net.twice(x), x * 4) and len(graphs) == 2
    assert str(inspect.signature(net.forward)) == "(x, *, scale=2)"
    assert torch.equal(net._orig_mod.forward(x), x * 2) and len(graphs) == 2


def on_torchs_own_result(name):
    return {"_orig_mod": torch.nn.Linear(2, 2), "dynamo_ctx": torch.nn.Identity(), "_torchdynamo_wrapper_id": 3}.get(
        name, torch.relu
    )


def set_attribute(module, name, value):
    setattr(module, name, value)


def set_item(module, name, value):
    module.__dict__[name] = value


def set_by_update(module, name, value):
    module.__dict__.update({name: value})


@pytest.mark.parametrize("way", (set_attribute, set_item, set_by_update))
@pytest.mark.parametrize("name", ("_orig_mod", "dynamo_ctx", "_torchdynamo_orig_callable", "_torchdynamo_wrapper_id"))
def test_what_libraries_set_on_a_compiled_module_is_not_set_on_the_module(name, way):
    """accelerate writes `_orig_mod` into `__dict__`: a loop that follows it over the plain module must end."""
    module, value = torch.nn.Linear(2, 2), on_torchs_own_result(name)
    compiled = tracework.compile(module, backend="eager")
    way(compiled, name, value)
    assert getattr(compiled, name) is value and compiled.__dict__[name] is value
    assert not hasattr(module, name) and name not in compiled._modules
    assert [*compiled.state_dict()] == ["weight", "bias"]
    delattr(compiled, name)
    assert getattr(compiled, name) is not None and name not in compiled.__dict__


def test_vars_of_a_compiled_module_are_those_of_the_module():
    module = torch.nn.Linear(2, 2)
    compiled = tracework.compile(module, backend="eager")
    attributes = compiled.__dict__
    assert isinstance(attributes, dict) and attributes == vars(compiled) == vars(module) == copy.copy(attributes)
    assert type(copy.copy(attributes)) is dict
    attributes["one"] = 1
    attributes |= {"two": 2}
    assert (module.one, module.two, compiled.one, attributes.pop("one"), attributes.setdefault("two", 3)) == (1, 2, 1, 1, 2)
    del compiled.__dict__["two"]
    assert not hasattr(module, "one") and not hasattr(compiled, "two")
    compiled.__dict__ = compiled.__dict__
    compiled.three = 3
    assert module.three == 3


def test_compile_calls_of_one_function_do_not_share_entries_or_limits():
    def plus(x, mode):
        return x + len(mode)

    (first, ours), (second, theirs) = counting(), counting()
    one = tracework.compile(plus, backend=first, isolate_recompiles=True, recompile_limit=2)
    other = tracework.compile(plus, backend=second, isolate_recompiles=True, recompile_limit=2)
    for mode in ("a", "bc"):
        assert torch.equal(one(torch.ones(2), mode), torch.ones(2) + len(mode))
    for mode in ("def", "ghij"):
        assert torch.equal(other(torch.ones(2), mode), torch.ones(2) + len(mode))
    assert (len(ours), len(theirs)) == (2, 2)


def test_messages_have_the_name_that_a_compile_call_is_given():
    call = tracework.compile(lambda x, text: x + len(text), backend="eager", name="decoder", recompile_limit=1)
    call(torch.ones(2), "a")
    with pytest.warns(UserWarning, match=r"compiled .*test_arguments.py:\d+, 'decoder'\) 1 times"):
        call(torch.ones(2), "ab")


def test_a_class_has_the_calls_of_its_instances_compiled():
    backend, graphs = counting()

    @tracework.compile(backend=backend)
    class Shift(torch.nn.Module):
        def __init__(self, by):
            super().__init__()
            self.by = torch.nn.Parameter(torch.tensor(by))

        def forward(self, x):
            return x + self.by

    @tracework.compile(backend=backend)
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by

    x = torch.ones(3)
    shift = Shift(2.0)
    assert isinstance(shift, Shift) and torch.equal(shift(x), x + 2) and torch.equal(Shift(5.0)(x), x + 5)
    assert torch.equal(Scale(3)(x), x * 3) and list(shift.state_dict()) == ["by"]
    assert {len(list(gm.graph.nodes)) for gm in graphs} == {4, 3}
    with pytest.raises(tracework.NotCallable, match="class int"):
        tracework.compile(int)


def test_forward_called_directly_is_compiled_and_runs_no_hooks():
    log, graphs = [], []

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)
            self.inner.register_forward_hook(lambda *args: log.append("inner"))

        def forward(self, x, scale=1.0):
            return self.inner(x) * scale

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    net, x = Net(), torch.ones(2, 3)
    net.register_forward_pre_hook(lambda *args: log.append("before"))
    net.register_forward_hook(lambda module, args, result: result + 1)
    compiled = tracework.compile(net, backend=backend)
    for calls in ([lambda m: m(x)], [lambda m: m.forward(x), lambda m: m.forward(x=x, scale=2.0)]):
        for call in calls:
            log.clear()
            expected, seen = call(net), list(log)
            log.clear()
            assert torch.equal(call(compiled), expected)
            assert log == seen
    assert len(graphs) >= 3

    outer = torch.nn.Sequential(compiled)
    inside = tracework.compile(lambda v: outer[0].forward(v) + outer(v), backend=backend, fullgraph=True)
    assert torch.equal(inside(x), net.forward(x) + net(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", lambda gm, inputs: gm.forward])
def test_equal_calls_share_what_is_compiled(backend):
    def f(x):
        return x.sin() + 1

    def entries(**given):
        compiled = tracework.compile(f, backend=backend, **given)
        torch.testing.assert_close(compiled(torch.ones(3)), f(torch.ones(3)))
        return compiled.callback

    first = entries()
    assert entries() is first
    other = entries(dynamic=True)
    assert other is not first and entries() is not first  # the last is kept


def test_max_autotune_on_a_cpu_says_nothing_and_changes_nothing():
    x = torch.randn(8, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = tracework.compile(lambda x: torch.softmax(x, 1), mode="max-autotune-no-cudagraphs")(x)
    assert torch.equal(tuned, tracework.compile(lambda x: torch.softmax(x, 1))(x))
