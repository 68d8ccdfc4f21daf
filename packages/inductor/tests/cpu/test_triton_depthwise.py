"""Depthwise convolutions as loops, through Triton's interpreter."""

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


def operands(change):
    channels, groups = (8, 4) if change == "grouped" else (6, 6)
    window = {"large window": (8, 8), "small window": (3, 3)}.get(change, (5, 5))
    dtype = torch.float64 if change == "float64" else torch.float32
    x, w = torch.randn(1, channels, 9, 9, dtype=dtype), torch.randn(channels, channels // groups, *window, dtype=dtype)
    return x if change == "row-major" else x.contiguous(memory_format=torch.channels_last), w, groups


OTHERS = ["grouped", "transposed", "large window", "small window", "float64", "row-major", "many elements", "strict"]


@pytest.mark.parametrize("change", [None, *OTHERS])
def test_others_are_the_librarys(change, monkeypatch):
    monkeypatch.setattr(conv, "LOOPED_ON", {"cpu"})
    if change == "many elements":
        monkeypatch.setattr(conv, "MOST_ELEMENTS", 100)
    x, w, groups = operands(change)

    def call(x, w):
        return prims.convolution(x, w, None, (1, 1), (1, 1), (1, 1), change == "transposed", (0, 0), groups)

    options = InductorOptions(numerics="strict" if change == "strict" else "default")
    host, _ = rendered(graph_of(call, x, w), options)
    assert ("convolution" in host) is (change is not None)
