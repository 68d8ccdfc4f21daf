"""Depthwise convolutions as loops, through Triton's interpreter."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from tracework_inductor import InductorOptions
from tracework_inductor.lowering import conv
from tracework_primops import prims
from triton_programs import graph_of, rendered

programs = pytest.importorskip("test_triton_programs")
# window, stride, padding, dilation, whether there is a bias
CASES = {
    "same size": ((5, 5), (1, 1), (2, 2), (1, 1), True),
    "steps": ((5, 6), (2, 1), (1, 2), (1, 1), False),
    "gaps": ((5, 5), (1, 2), (4, 0), (2, 1), True),
    "no padding": ((5, 5), (1, 1), (0, 0), (1, 1), False),
    "more padding than window": ((5, 5), (2, 3), (6, 7), (1, 1), False),
    "large": ((7, 7), (1, 1), (3, 3), (1, 1), True),
}


def program(name, dtype=torch.float32):
    window, stride, padding, dilation, bias = CASES[name]

    def call(x, w, *b):
        return prims.convolution(x, w, b[0] if b else None, stride, padding, dilation, False, (0, 0), 6)

    def inputs():
        made = torch.Generator().manual_seed(0)
        x = torch.randn(2, 6, 9, 11, generator=made).to(dtype).contiguous(memory_format=torch.channels_last)
        w = torch.randn(6, 1, *window, generator=made).to(dtype)
        return (x, w, *([torch.randn(6, generator=made).to(dtype)] if bias else []))

    return call, inputs


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, tmp_path, monkeypatch):
    monkeypatch.setattr(conv, "LOOPED_ON", {"cpu"})
    case = program(name)
    monkeypatch.setitem(programs.PROGRAMS, name, case)
    assert "convolution" not in rendered(graph_of(case[0], *case[1]()))[0]
    programs.test_equals_eager(name, tmp_path)


PLAIN = {
    "rows": ((3, 9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    "rows that fill blocks": ((2, 4, 32), (3, 3), (1, 1), (1, 1), (1, 1)),
    "rows, steps and gaps": ((2, 9, 17), (3, 2), (2, 1), (1, 3), (2, 2)),
    "rows, large window": ((2, 7, 16), (5, 6), (1, 1), (2, 3), (1, 1)),
    "signal": ((3, 37), (4,), (1,), (3,), (1,)),
    "signal, steps and gaps": ((3, 37), (9,), (3,), (4,), (2,)),
    "volume": ((2, 4, 5, 13), (3, 3, 2), (1, 2, 1), (1, 1, 1), (1, 1, 1)),
}
"""Name -> sizes of an image in float32, window, stride, padding, dilation."""
FORMS = {2: torch.channels_last, 3: torch.channels_last_3d}


def on_a_gpu(name, x, w, b, folder):
    """(result, what torch gives)."""
    _, window, *settings = PLAIN[name]
    groups = w.shape[0]

    def program(x, w, b):
        return prims.maximum(prims.convolution(x, w, b, *settings, False, (0,) * len(window), groups), 0.0)

    host, kernels = programs.rendered(programs.graph_of(program, x, w, b, device=torch.device("cuda", 0)))
    assert "convolution" not in host
    (found,) = programs.triton_interpreter.host_call(host, kernels, folder)([x, w, b])
    reference = (torch.conv1d, torch.conv2d, torch.conv3d)[len(window) - 1]
    return found, torch.relu(reference(x.double(), w.double(), b.double(), *settings, groups))


@pytest.mark.parametrize(
    ("name", "last"),
    [*((name, False) for name in PLAIN), ("rows", True), ("rows that fill blocks", True), ("rows, large window", True)],
)
def test_plain_ones_as_on_a_gpu(name, last, tmp_path):
    """In kernels that read neighbouring elements by neighbouring threads."""
    sizes, window, *_ = PLAIN[name]
    made = torch.Generator().manual_seed(0)
    x, w, b = (torch.randn(n, generator=made) for n in ((1, *sizes), (sizes[0], 1, *window), sizes[:1]))
    x = x.contiguous(memory_format=FORMS[len(window)]) if last else x
    found, exact = on_a_gpu(name, x, w, b, tmp_path)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5, check_stride=True)


def test_what_lies_outside_adds_nothing_to_infinite_weights(tmp_path):
    x, w, b = torch.ones(1, 3, 9, 11), torch.ones(3, 1, 3, 3), torch.zeros(3)
    w[0, 0, 0, 0] = torch.inf
    found, _ = on_a_gpu("rows", x, w, b, tmp_path)
    assert torch.isinf(found[0, 0, 1:, 1:]).all() and found[0, 0, 0].tolist() == [4.0, *[6.0] * 9, 4.0]


def operands(change):
    channels, groups = (8, 4) if change == "grouped" else (6, 6)
    window = {"large window": (8, 8), "small window": (3, 3)}.get(change, (5, 5))
    dtype = {"float64": torch.float64, "float32": torch.float32}.get(change or "", torch.bfloat16)
    x, w = torch.randn(1, channels, 9, 9, dtype=dtype), torch.randn(channels, channels // groups, *window, dtype=dtype)
    return x if change == "row-major" else x.contiguous(memory_format=torch.channels_last), w, groups


OTHERS = ["grouped", "transposed", "large window", "small window", "float64", "row-major", "many elements", "strict"]


@pytest.mark.parametrize("change", [None, "float32", *OTHERS])
def test_others_are_the_librarys(change, monkeypatch):
    monkeypatch.setattr(conv, "LOOPED_ON", {"cpu"})
    if change == "many elements":
        row = conv.LOOPED["channels last"][-1]
        monkeypatch.setitem(conv.LOOPED, "channels last", (dataclasses.replace(row, elements=100),))
    x, w, groups = operands(change)

    def call(x, w):
        return prims.convolution(x, w, None, (1, 1), (1, 1), (1, 1), change == "transposed", (0, 0), groups)

    options = InductorOptions(numerics="strict" if change == "strict" else "default")
    host, _ = rendered(graph_of(call, x, w), options)
    assert ("convolution" in host) is (change in OTHERS)


@pytest.mark.parametrize(("role", "looped"), [("inference", True), ("forward", True), ("backward", False)])
def test_rows_are_loops_in_inference_and_forwards(role, looped):
    x, w = torch.randn(1, 3, 9, 9), torch.randn(3, 1, 3, 3)
    graph = graph_of(
        lambda x, w: prims.convolution(x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 3),
        *(x, w),
        device=torch.device("cuda", 0),
    )
    host, _ = rendered(graph.replace(role=role))
    assert ("convolution" not in host) is looped
