"""Rows that are asked for before they are read, and rows that are put where an index says: every element is eager's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp import ahead, streams
from tracework_primops import prims
from tracework_runtime import load
from tracework_runtime.errors import IndexOutOfRange


@pytest.fixture(autouse=True)
def nothing_is_in_a_cache(monkeypatch) -> None:
    for module in (ahead, streams):
        monkeypatch.setattr(module, "LEAST_BYTES", 1 << 12)


def from_the_end(x):
    return prims.flip(x, (0,)), prims.flip(x, (1,))


def some_of_each(x):
    return (prims.contiguous(prims.permute(prims.reshape(x, (4, 8, 3, 67)), (0, 2, 1, 3)), (1608, 536, 67, 1)),)


def looked_up(x, index):
    return prims.index_select(x, 0, index), prims.neg(prims.index_select(x, 0, index))


def put(x, index):
    zeros = prims.full((40, 201), 0.0, torch.float32, torch.device("cpu"))
    added = prims.index_put(zeros, (index,), prims.index_select(x, 0, index), True)
    return added, prims.index_put(prims.mul(x, 2.0), (index,), prims.mul(prims.index_select(x, 0, index), 3.0), False)


INDEX = torch.tensor([3, 0, 31, 3, 3, 7, 12] * 9)
CASES = {
    "from the end": (from_the_end, ()),
    "some of each": (some_of_each, ()),
    "looked up": (looked_up, (INDEX,)),
    "put": (put, (INDEX,)),
}


@pytest.mark.parametrize("name", CASES)
def test_rows(name) -> None:
    program, more = CASES[name]
    inputs = [torch.randn(32, 201, generator=torch.Generator().manual_seed(0)), *more]
    graph = build(program, inputs)
    artifact = compile_graph(graph)
    assert "tw_ahead(&" in artifact.kernels[0].source
    for actual, expected in zip(load(artifact)(list(inputs)), graph.run(*inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("program", [looked_up, put])
def test_a_row_outside_is_an_error(program) -> None:
    inputs = [torch.randn(32, 201), INDEX]
    compiled = load(compile_graph(build(program, inputs)))
    with pytest.raises(IndexOutOfRange):
        compiled([inputs[0], torch.where(INDEX == 12, 40, INDEX)])
