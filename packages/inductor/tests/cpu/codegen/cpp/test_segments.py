"""Results that are put together along an axis: each part by a loop of its own, every element as in eager."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp import streams
from tracework_primops import prims
from tracework_runtime import load


def put_together(*xs):
    """Along the last axis, along one of single places, along the first one; in the middle of one with few steps around it, for threads."""
    doubled = [prims.mul(x, 2.0) for x in xs[:3]]
    stacked = [prims.reshape(x, (70, 1, x.shape[1])) for x in (doubled[0], doubled[1])]
    images = [prims.neg(x) for x in xs[3:]]
    many = [doubled[n % 2] for n in range(9)]
    return prims.cat(doubled, 1), prims.cat(stacked, 1), prims.cat(doubled[:2], 0), prims.cat(images, 1), prims.cat(many, 1)


def inputs():
    torch.manual_seed(0)
    rows = [torch.randn(70, 64), torch.randn(70, 64), torch.randn(70, 33)]
    return [*rows, torch.randn(2, 8, 30, 30), torch.randn(2, 24, 30, 30)]


def test_no_element_asks_for_its_part(monkeypatch) -> None:
    xs = inputs()
    graph = build(put_together, xs)
    for least in (streams.LEAST_BYTES, 1 << 10):
        monkeypatch.setattr(streams, "LEAST_BYTES", least)
        artifact = compile_graph(graph)
        text = artifact.kernels[0].source.partition('extern "C" void loops')[2]
        assert least == 1 << 10 or " >= " not in text
        for actual, expected in zip(load(artifact)(list(xs)), graph.run(*xs), strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)
