"""Depthwise convolutions as loops, through Triton's interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from tracework_inductor.lowering import conv
from tracework_primops import prims

programs = pytest.importorskip("test_triton_programs")
ROW_MAJOR, CHANNELS_LAST = torch.contiguous_format, torch.channels_last
# window, stride, padding, dilation, layout, whether there is a bias
CASES = {
    "same size": ((3, 3), (1, 1), (1, 1), (1, 1), ROW_MAJOR, True),
    "steps": ((3, 5), (2, 1), (1, 2), (1, 1), ROW_MAJOR, False),
    "gaps": ((3, 3), (1, 2), (2, 0), (2, 3), CHANNELS_LAST, True),
    "no padding": ((2, 2), (1, 1), (0, 0), (1, 1), CHANNELS_LAST, False),
    "one element": ((1, 1), (1, 1), (0, 0), (1, 1), CHANNELS_LAST, True),
    "more padding than window": ((2, 3), (1, 1), (4, 3), (1, 1), ROW_MAJOR, False),
    "large": ((7, 7), (1, 1), (3, 3), (1, 1), CHANNELS_LAST, True),
}


SERIES = {"forward": ((4,), (1,), (3,), (1,)), "gaps": ((3,), (2,), (1,), (2,))}


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("turned", [False, True])
def test_series(name, turned, tmp_path, monkeypatch):
    """Of one axis, as state-space models have them; channels next to each other where they come from a product."""
    monkeypatch.setattr(conv, "LOOPED_ON", {"cpu"})
    window, stride, padding, dilation = SERIES[name]

    def call(x, w, b):
        return prims.convolution(prims.permute(x, (0, 2, 1)) if turned else x, w, b, stride, padding, dilation, False, (0,), 6)

    def inputs():
        made = torch.Generator().manual_seed(0)
        x = torch.randn(2, 6, 17, generator=made)
        return x.transpose(1, 2).contiguous() if turned else x, torch.randn(6, 1, *window, generator=made), torch.randn(6)

    monkeypatch.setitem(programs.PROGRAMS, name, (call, inputs))
    assert "convolution" not in programs.rendered(programs.graph_of(call, *inputs()))[0]
    programs.test_equals_eager(name, tmp_path)


def program(name, dtype=torch.float32):
    window, stride, padding, dilation, layout, bias = CASES[name]

    def call(x, w, *b):
        return prims.convolution(x, w, b[0] if b else None, stride, padding, dilation, False, (0, 0), 6)

    def inputs():
        made = torch.Generator().manual_seed(0)
        x = torch.randn(2, 6, 9, 11, generator=made).to(dtype).contiguous(memory_format=layout)
        w = torch.randn(6, 1, *window, generator=made).to(dtype)
        return (x, w, *([torch.randn(6, generator=made).to(dtype)] if bias else []))

    return call, inputs


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, tmp_path, monkeypatch):
    monkeypatch.setattr(conv, "LOOPED_ON", {"cpu"})
    case = program(name)
    monkeypatch.setitem(programs.PROGRAMS, name, case)
    assert "convolution" not in programs.rendered(programs.graph_of(case[0], *case[1]()))[0]
    programs.test_equals_eager(name, tmp_path)


@pytest.mark.parametrize("change", ["grouped", "transposed", "large window", "float64", "many elements"])
def test_others_are_the_librarys(change, monkeypatch):
    monkeypatch.setattr(conv, "LOOPED_ON", {"cpu"})
    if change == "many elements":
        monkeypatch.setattr(conv, "MOST_ELEMENTS", 100)
    channels, groups = (8, 4) if change == "grouped" else (6, 6)
    window = (8, 8) if change == "large window" else (3, 3)
    dtype = torch.float64 if change == "float64" else torch.float32
    x, w = torch.randn(1, channels, 9, 9, dtype=dtype), torch.randn(channels, channels // groups, *window, dtype=dtype)

    def call(x, w):
        return prims.convolution(x, w, None, (1, 1), (1, 1), (1, 1), change == "transposed", (0, 0), groups)

    assert "convolution" in programs.rendered(programs.graph_of(call, x, w))[0]
