"""Bodies in parts: what crosses from one to the next, rows that are not whole groups, results that go past the caches, places that are
written and read."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import build, check
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp import streams
from tracework_primops import prims
from tracework_runtime import load

p = prims


def crossing(x, y, keep):
    """A function of a function's value, comparisons and masks that are needed on both sides, whole numbers, halves."""
    inner = p.erf(p.mul(x, y))
    outer = p.exp(p.sub(inner, x))
    chosen = p.where(p.gt(x, y), outer, p.where(keep, inner, p.sigmoid(y)))
    half = p.convert(p.tanh(p.mul(p.convert(p.convert(x, torch.bfloat16), torch.float32), outer)), torch.bfloat16)
    return chosen, half, p.gt(outer, inner), p.convert(p.mul(p.exp(y), 3.0), torch.int64), p.add(x, y)


def rows(x):
    """Reductions of functions, one after another, and what follows them."""
    largest = p.amax(p.tanh(x), (1,), True)
    e = p.exp(p.sub(x, largest))
    total = p.sum(e, (1,), True)
    return p.erf(p.div(e, total)), p.amin(p.sigmoid(x), (1,), False), p.argmax(p.exp(x), 1, False)


@pytest.mark.parametrize("width", [32, 47, 300])
def test_values_that_parts_hand_on(width) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(7, width), torch.randn(width)
    assert "tw_each_exp" in check(crossing, x, y, torch.rand(7, width) > 0.5, rtol=2e-6, atol=2e-6).kernels[0].source
    assert "tw_each_" in check(rows, x, rtol=2e-6, atol=2e-6).kernels[0].source


def test_written_inputs() -> None:
    """What is stored to the memory of an input is read before."""
    x = torch.randn(5, 90)

    def program(x):
        e = p.exp(x)
        new, product = p.mul(p.add(e, x), x), p.mul(e, x)
        return new, product, p.copy_into(x, p.sub(x, 1.0))

    check(program, x, rtol=2e-6, atol=2e-6)


def test_past_the_caches(monkeypatch) -> None:
    monkeypatch.setattr(streams, "LEAST_BYTES", 1 << 14)
    inputs = [torch.randn(70, 1037), torch.randn(70, 1037), torch.randn(40960)]

    def program(x, y, flat):
        e = p.exp(p.sub(x, p.amax(x, (1,), True)))
        return p.erf(p.div(e, p.sum(e, (1,), True))), p.tanh(p.permute(y, (1, 0))), p.mul(flat, p.sigmoid(flat))

    graph = build(program, inputs)
    artifact = compile_graph(graph)
    assert artifact.kernels[0].source.count("tw_stream(&") == 3
    for actual, expected in zip(load(artifact)(list(inputs)), graph.run(*inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-6, atol=2e-6)
