"""What is left of what was compiled when its model, its function or its code is gone, and after reset(): nothing."""

import gc
import types
import weakref
from pathlib import Path

import pytest
import torch
import tracework
from tracework_runtime.load import CompiledFn


class Model(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, width), torch.nn.Linear(width, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        return self.last(torch.relu(self.first(x))) * self.scale


def trained(call):
    call(torch.randn(3, 4)).sum().backward()
    return call


def model_and_compiled():
    model = Model()
    return trained(tracework.compile(model)), model, *model.parameters(), model.scale


def in_place():
    model = Model()
    with tracework.replace_torch_compile():
        model.compile()
    return trained(model), *model.parameters()


def method():
    model = Model()
    return trained(tracework.compile(model.forward)), model, *model.parameters()


def closure():
    model = Model()
    return trained(tracework.compile(lambda x: model(x).tanh())), model, *model.parameters()


def own_code():
    """A function whose code dies with it."""
    names = {"torch": torch}
    exec("def f(x):\n    return torch.sin(x) * 3", names)
    x = torch.randn(4, requires_grad=True)
    compiled = tracework.compile(names["f"])
    compiled(x).sum().backward()
    return compiled, names["f"], x


@pytest.fixture
def made(monkeypatch):
    """References to the loaded graphs and the fx graphs that come into being."""
    found, plain = [], {cls: cls.__init__ for cls in (CompiledFn, torch.fx.GraphModule)}
    for cls, init in plain.items():

        def remembered(self, *args, init=init, **kwargs):
            init(self, *args, **kwargs)
            found.append(weakref.ref(self))

        monkeypatch.setattr(cls, "__init__", remembered)
    return found


def alive(references):
    gc.collect()
    gc.collect()
    return [type(r()).__name__ for r in references if r() is not None]


@pytest.mark.parametrize("program", [model_and_compiled, in_place, method, closure, own_code], ids=lambda p: p.__name__)
def test_nothing_is_left_of_what_was_deleted(program, made):
    references = [weakref.ref(x) for x in program()]
    assert made and not alive(references)
    if program not in (
        closure,
        method,
        in_place,
    ):  # whose code stays: what was compiled last for it rests for the next equal call
        assert not alive(made)
    tracework.compiler.reset()
    assert not alive(made)


def test_reset_leaves_nothing_of_what_is_still_held(made):
    model = Model()
    compiled = trained(tracework.compile(model))
    assert alive(made)
    tracework.compiler.reset()
    assert not alive(made)
    assert trained(compiled) is compiled and alive(made)


def test_many_compilations_leave_no_libraries():
    """Each graph another; what the cache keeps of it is bounded, and is text."""

    def left(widths):
        for width in widths:
            trained(tracework.compile(Model(width)))
        gc.collect()
        gc.collect()  # what a code object held is only seen by the collector once the code is gone
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {line for line in lines if ".so" in line or "memfd:" in line}

    before = left(range(30, 33))
    assert len(left(range(33, 41)) - before) < 8  # two libraries of four segments each for a graph, if they stayed


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("asks", [False, True])
def test_no_frames_of_compiling_are_kept(backend, asks):
    """Why it cannot be stored may be kept, but not the frames in which that was found: a cycle, which holds what the call was given."""
    gc.collect()
    gc.disable()
    try:
        compiled = tracework.compile(lambda x: x.sin() * 2, backend=backend)
        compiled(torch.ones(3, requires_grad=asks))
        kept = [found for found in gc.get_objects() if type(found) is types.TracebackType]
        assert not [f.tb_frame.f_code.co_qualname for f in kept if "tracework_" in f.tb_frame.f_code.co_filename]
    finally:
        gc.enable()
