"""Triton kernels that write and read matrices with padded rows, interpreted."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from tracework_inductor.lowering import row_padding
from tracework_primops import prims

programs = pytest.importorskip("test_triton_programs")


def tensor(*sizes, dtype=torch.bfloat16):
    return torch.randn(*sizes, dtype=dtype) / 4


def logits_and_gradients(x, w, g):
    """A padded product read by a reduction, and a padded gradient read both ways round."""
    logits = prims.convert(prims.mm(x, prims.permute(w, (1, 0))), torch.float32)
    e = prims.exp(prims.sub(logits, prims.amax(logits, (1,), True)))
    gradient = prims.mul(prims.div(e, prims.sum(e, (1,), True)), prims.reshape(g, (24, 37)))
    flat = prims.convert(gradient, torch.bfloat16)
    return prims.mm(flat, w), prims.mm(prims.permute(flat, (1, 0)), x)


def bias_and_output(c, x, w):
    """The bias and the copy to eager's strides in one kernel."""
    return prims.addmm(c, x, prims.permute(w, (1, 0)), 1, 1)


CASES = {
    "logits": (logits_and_gradients, lambda: (tensor(24, 16), tensor(37, 16), tensor(2, 12, 37, dtype=torch.float32))),
    "bias": (bias_and_output, lambda: (tensor(37), tensor(24, 16), tensor(37, 16))),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, tmp_path, monkeypatch):
    monkeypatch.setattr(row_padding, "SLOWER", {("cpu", 2): {2: 1e9, 4: 1e9, 8: 1e9}})
    monkeypatch.setattr(row_padding, "FAST", {("cpu", 2): 1.0})
    monkeypatch.setattr(row_padding, "LEAST_GAIN", 0.0)
    monkeypatch.setitem(programs.PROGRAMS, name, CASES[name])
    host, kernels = programs.rendered(programs.graph_of(CASES[name][0], *CASES[name][1]()))
    assert "(24, 37, ), (40, 1, )" in host
    if name == "bias":
        assert len(kernels) == 1
    programs.test_equals_eager(name, tmp_path)
