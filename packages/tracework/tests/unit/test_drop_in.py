"""torch.compile replaced: under every name, wrapper and decorator, for good and for a while."""

import functools
import importlib
import inspect
import subprocess
import sys

import pytest
import torch
import tracework
from torch import compile as bound_before

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


def code():
    return torch.compile.__code__.co_name


def test_it_stays_for_good_and_ends_with_the_block_that_began_it():
    signature = inspect.signature(torch.compile)
    with tracework.replace_torch_compile():
        assert code() == "_compile" and inspect.signature(torch.compile) == signature
        tracework.replace_torch_compile()  # dropped, and in place already
        with tracework.replace_torch_compile():
            assert code() == "_compile"
        assert code() == "_compile"
    assert code() == "compile" and not hasattr(torch.compile, "__signature__")
    kept = tracework.replace_torch_compile()
    assert code() == "_compile"
    for _ in range(2):
        with kept:
            assert code() == "_compile"
        assert code() == "compile"


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
    done = subprocess.run([sys.executable, "-c", LIBRARIES.replace("BEFORE", before)], capture_output=True, text=True)
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
