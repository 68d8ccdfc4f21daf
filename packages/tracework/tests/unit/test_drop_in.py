"""torch.compile replaced: under every name, wrapper and decorator, for good and for a while."""

import dataclasses
import functools
import importlib
import inspect
import operator
import subprocess
import sys

import pytest
import torch
import tracework
from torch import compile as bound_before
from tracework import api, compiler, drop_in, torch_names, torch_options

X = torch.linspace(-1, 1, 4)
partial_before = functools.partial(torch.compile, backend="eager")


def wrapping(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapped


wrapped_before = wrapping(torch.compile)


def program(x):
    return x.sin() + 1


class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin() + 1


WAYS = {
    "attribute": lambda backend: torch.compile(program, backend=backend),
    "bound before": lambda backend: bound_before(program, backend=backend),
    "bound inside": lambda backend: importlib.import_module("torch").compile(program, backend=backend),
    "a partial of before": lambda backend: partial_before(program, backend=backend),
    "a wrapper of before": lambda backend: wrapped_before(program, backend=backend),
    "a wrapper of now": lambda backend: wrapping(torch.compile)(program, backend=backend),
    "decorator": lambda backend: torch.compile(backend=backend)(program),
    "decorator of before": lambda backend: bound_before(backend=backend)(program),
    "module": lambda backend: torch.compile(Net(), backend=backend),
    "method": lambda backend: torch.compile(Net().forward, backend=backend),
    "in place": lambda backend: (net := Net(), net.compile(backend=backend))[0],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_name_it_is_ours(way):
    graphs = []
    with tracework.replace_torch_compile():
        compiled = WAYS[way](lambda gm, inputs: (graphs.append(gm), gm.forward)[1])
        assert torch.equal(compiled(X), X.sin() + 1)
    assert len(graphs) == 1
    assert torch.equal(compiled(X), X.sin() + 1) and len(graphs) == 1  # what was compiled stays so


ARGUMENTS = {
    "fullgraph": True,
    "dynamic": False,
    "backend": "eager",
    "mode": "default",
    "options": {},
    "name": "mine",
    "disable": False,
    "recompile_limit": 3,
    "isolate_recompiles": True,
    "shapes_spec": {"x": [None]},
    "dynamic_shapes": {"x": [None]},
}


@pytest.mark.parametrize("name", sorted({*inspect.signature(torch.compile).parameters} - {"model"}))
def test_every_argument_of_torch_is_taken(name):
    with tracework.replace_torch_compile():
        compiled = torch.compile(program, **{"backend": "eager", name: ARGUMENTS[name]})
        assert torch.equal(compiled(X), X.sin() + 1)


def ours():
    return torch.compile.__code__.co_filename == drop_in.__file__


def test_it_stays_for_good_and_ends_with_the_block_that_began_it():
    signature = inspect.signature(torch.compile)
    with tracework.replace_torch_compile():
        assert ours() and inspect.signature(torch.compile) == signature
        tracework.replace_torch_compile()  # dropped, and in place already
        with tracework.replace_torch_compile():
            assert ours()
        assert ours()
    assert not ours() and not hasattr(torch.compile, "__signature__")
    kept = tracework.replace_torch_compile()
    assert ours()
    for _ in range(2):
        with kept:
            assert ours()
        assert not ours()


MARKS = (
    "PrecompileError allow_in_graph assume_constant_result compile config is_compiling is_dynamo_compiling is_exporting"
    " keep_portable_guards_unsafe keep_tensor_guards_unsafe nested_compile_region nonstrict_trace skip_all_guards_unsafe"
    " skip_guard_on_all_nn_modules_unsafe skip_guard_on_globals_unsafe skip_guard_on_inbuilt_nn_modules_unsafe substitute_in_graph"
    " wrap_numpy disable"
)
"""Names of torch.compiler that mark something, of which this compiler honours torch's own."""


def test_each_name_of_torchs_is_replaced_or_is_a_mark_or_is_left():
    known = {*drop_in.REPLACED.split(), *drop_in.LEFT.split(), *MARKS.split()}
    assert set(torch_names.torch_names("name")) <= known
    assert set(drop_in.REPLACED.split()) <= set(compiler.__all__)
    with tracework.replace_torch_compile():
        for name in filter(lambda name: hasattr(torch.compiler, name), drop_in.REPLACED.split()):
            assert getattr(torch.compiler, name).__code__.co_filename == drop_in.__file__, name


def test_what_asks_the_compiler_asks_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path))
    with tracework.replace_torch_compile():
        torch.compiler.reset()
        torch.compile(program)(X)
        stored, _ = torch.compiler.save_cache_artifacts()
        assert torch.compiler.load_cache_artifacts(stored) is not None
        assert torch.compiler.list_backends() == tracework.list_backends()


RESET = """
import torch, tracework
tracework.replace_torch_compile()
import torch._dynamo
graphs = []
call = torch.compile(lambda x: x.sin(), backend=lambda gm, inputs: (graphs.append(gm), gm.forward)[1])
for reset in (lambda: None, lambda: None, torch._dynamo.reset, torch.compiler.reset):
    reset()
    call(torch.ones(2))
    print(len(graphs), end=" ")
"""


def test_torchs_resets_forget_what_is_compiled_here():
    done = subprocess.run([sys.executable, "-c", RESET], capture_output=True, text=True, timeout=300)
    assert done.stdout == "1 1 2 3 ", done.stderr


@pytest.mark.parametrize("given", [{"mode": "max-autotune"}, {"mode": "reduce-overhead"}, {"options": {"epilogue_fusion": True}}])
@pytest.mark.parametrize("way", ["attribute", "module", "in place", "class", "decorator"])
def test_warnings_are_at_the_line_of_the_program(given, way, monkeypatch):
    monkeypatch.setattr(api, "_told", set())
    monkeypatch.setattr(torch_options, "_told", set())
    ways = {
        "attribute": lambda: torch.compile(program, **given),
        "module": lambda: torch.compile(Net(), **given),
        "in place": lambda: Net().compile(**given),
        "class": lambda: torch.compile(type("Other", (Net,), {}), **given),
        "decorator": lambda: torch.compile(**given)(program),
    }
    with tracework.replace_torch_compile(), pytest.warns(UserWarning) as told:
        ways[way]()
    assert {warning.filename for warning in told} == {__file__}


LIBRARIES = """
import sys, torch, tracework
BEFORE
with tracework.replace_torch_compile():
    import torch._dynamo
    from torch._dynamo import OptimizedModule
    ours = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    for kind in (OptimizedModule, torch._dynamo.eval_frame.OptimizedModule, torch._dynamo.OptimizedModule, Early or OptimizedModule):
        assert isinstance(ours, kind) and not isinstance(ours._orig_mod, kind) and not isinstance(3, kind)
        assert issubclass(kind, torch.nn.Module) and not issubclass(torch.nn.Linear, kind)
assert not isinstance(ours, torch._dynamo.OptimizedModule)
theirs = torch.compile(torch.nn.Linear(2, 2), backend="eager")
assert type(theirs) is torch._dynamo.OptimizedModule
with tracework.replace_torch_compile():
    assert isinstance(theirs, torch._dynamo.OptimizedModule)
print("DONE")
"""


@pytest.mark.parametrize(
    "before", ["Early = None", "from torch._dynamo import OptimizedModule as Early"], ids=["later", "before"]
)
def test_libraries_that_ask_for_torchs_wrapper_know_ours(before):
    done = subprocess.run(
        [sys.executable, "-c", LIBRARIES.replace("BEFORE", before)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "DONE", done.stderr


def test_another_original_is_compiled_in_its_place():
    """What accelerate's unwrap_model(keep_torch_compile=True) does: it takes containers off `_orig_mod` and puts it back."""
    graphs = []
    compiled = tracework.compile(torch.nn.Sequential(Net()), backend=lambda gm, inputs: (graphs.append(gm), gm.forward)[1])
    compiled(X)
    compiled._orig_mod = compiled._orig_mod
    compiled(X)
    assert len(graphs) == 1
    net = compiled._orig_mod = compiled._orig_mod[0]
    assert torch.equal(compiled(X), X.sin() + 1) and len(graphs) == 2
    assert compiled._orig_mod is net and isinstance(compiled, Net) and not dict(compiled.named_children())


def test_another_method_is_compiled_as_the_module_was():
    graphs = []
    compiled = tracework.compile(Net(), backend=lambda gm, inputs: (graphs.append(gm), gm.forward)[1])
    assert torch.equal(compiled.dynamo_ctx(program)(X), X.sin() + 1) and len(graphs) == 1


def test_torchs_explain_explains_this_compiler(monkeypatch):
    from torch._dynamo import explain as before
    from torch._dynamo.backends.debugging import ExplainOutput

    def breaks(x):
        x = x.sin().cos()
        torch._dynamo.graph_break()
        return x * x + x

    monkeypatch.setattr("tracework.backends._default", ["eager"])
    with tracework.replace_torch_compile():  # what is given back afterwards is taken again
        torch._dynamo.explain(breaks)(X)
    with tracework.replace_torch_compile():
        found = torch._dynamo.explain(breaks)(X)
        at_once = torch._dynamo.explain(breaks, X)
        ours = tracework.explain(breaks)(X)
    assert torch._dynamo.explain is before
    assert type(before(breaks)(X)) is ExplainOutput
    assert {field.name for field in dataclasses.fields(ExplainOutput)} <= {*vars(found)}
    for said in (found, at_once):
        assert (said.graph_count, said.graph_break_count, said.op_count) == (2, 1, 4)
        assert [[node.op for node in graph.graph.nodes] for graph in said.graphs] and said.out_guards
        assert said.ops_per_graph == [["sin", "cos"], [operator.mul, operator.add]]
        (reason,) = said.break_reasons
        assert "graph_break() was called" in reason.reason and reason.user_stack[-1].name == "breaks"
    assert str(found).splitlines()[2:] == str(ours).splitlines()[2:] and found.full()
