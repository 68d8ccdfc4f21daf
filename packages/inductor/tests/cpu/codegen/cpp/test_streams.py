"""Results that go past the caches: every element, at any alignment of the rows, and only where no cache holds them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp import streams
from tracework_primops import prims
from tracework_runtime import load


def results(x, y, flat):
    """Rows that begin anywhere in a line, rows after a reduction, one that is read again, turned ones, other sizes of elements, one axis."""
    rows = prims.sub(x, prims.reshape(prims.amax(x, (1,), False), (x.shape[0], 1)))
    turned = prims.add(y, prims.permute(x, (1, 0)))
    return rows, turned, prims.convert(x, torch.bfloat16), prims.gt(x, rows), prims.neg(flat)


def test_results_larger_than_caches(monkeypatch) -> None:
    inputs = [torch.randn(70, 1037), torch.randn(1037, 70), torch.randn(40001)]
    graph = build(results, inputs)
    assert "tw_stream(&" not in compile_graph(graph).kernels[0].source, "the caches hold these results"
    monkeypatch.setattr(streams, "LEAST_BYTES", 1 << 14)
    artifact = compile_graph(graph)
    assert artifact.kernels[0].source.count("tw_ahead(&") == 2, "what is turned is asked for some tiles ahead, a row one row"
    assert artifact.kernels[0].source.count("tw_stream(&") == 4, "all but the one that is stored where a maximum is looked for"
    for actual, expected in zip(load(artifact)(list(inputs)), graph.run(*inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def in_parts(x):
    """Rows whose steps at the ends are apart, or that are put together of short ones."""
    return (
        prims.pad(x, ((0, 0), (3, 5)), 0.5),
        prims.roll(x, (7,), (1,)),
        prims.cat([prims.neg(x)] + [prims.slice(x, 1, 0, 20)] * 2, 1),
    )


def test_rows_that_are_made_in_parts(monkeypatch) -> None:
    monkeypatch.setattr(streams, "LEAST_BYTES", 1 << 14)
    x = torch.randn(70, 137)
    graph = build(in_parts, [x])
    artifact = compile_graph(graph)
    assert artifact.kernels[0].source.count("tw_stream(&") == 3, "one for each row"
    for actual, expected in zip(load(artifact)([x]), graph.run(x), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_a_reduction_that_ends_a_row_asks_for_the_next(monkeypatch) -> None:
    monkeypatch.setattr(streams, "LEAST_BYTES", 1 << 14)
    x = torch.randn(70, 1037)

    def program(x):
        largest = prims.amax(x, (1,), True)
        return largest, prims.sum(prims.exp(prims.sub(x, largest)), (1,), True)

    graph = build(program, [x])
    artifact = compile_graph(graph)
    assert artifact.kernels[0].source.count("tw_ahead(&") == 1
    for actual, expected in zip(load(artifact)([x]), graph.run(x), strict=True):
        torch.testing.assert_close(actual, expected)
