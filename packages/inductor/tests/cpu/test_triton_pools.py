"""Gradients of pools, gathered, through Triton's interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from tracework_inductor.lowering import window
from tracework_primops import prims

programs = pytest.importorskip("test_triton_programs")

WINDOWS = {
    "overlapping": ((3, 3), (2, 2), (1, 1), False),
    "ends early": ((2, 2), (2, 2), (0, 0), False),
    "gaps": ((2, 2), (3, 3), (0, 0), False),
    "ceil": ((3, 2), (2, 2), (1, 0), True),
}


@pytest.mark.parametrize("sizes", ((9, 11), (8, 16), (7, 29)), ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_equals_eager(name, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(window, "GATHERED_ON", {"cpu"})
    kernel, stride, padding, ceil = WINDOWS[name]
    torch.manual_seed(0)
    x = torch.randint(0, 3, (2, 3, *sizes)).float()  # ties
    out, indices = torch.nn.functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil, return_indices=True)

    def gradient(g, x, i):
        return prims.max_pool_backward(g, x, kernel, stride, padding, (1, 1), ceil, i)

    case = gradient, lambda: (torch.randn_like(out), x, indices)
    monkeypatch.setitem(programs.PROGRAMS, name, case)
    assert "max_pool" not in programs.rendered(programs.graph_of(gradient, *case[1]()))[0]
    programs.test_equals_eager(name, tmp_path)
