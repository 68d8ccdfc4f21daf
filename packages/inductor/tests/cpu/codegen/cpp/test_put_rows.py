"""Rows put at places that are looked up, by several threads: eager's values, the same bits on any number of threads."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.options import InductorOptions
from tracework_primops import prims
from tracework_runtime import load
from tracework_runtime.errors import IndexOutOfRange

WIDTH = 160
INDEX = torch.randint(0, 37, (3, 300), generator=torch.Generator().manual_seed(0))


def zeros(*sizes):
    return prims.full(sizes, 0.0, torch.float32, torch.device("cpu"))


def added(x, index):
    return prims.index_add(zeros(37, WIDTH), 0, prims.select(index, 0, 0), prims.select(x, 0, 0), 1)


def last_wins(x, index):
    return prims.index_put(zeros(37, WIDTH), (prims.select(index, 0, 0),), prims.mul(prims.select(x, 0, 0), 3.0), False)


def each_of_a_batch(x, index):
    return prims.index_add(zeros(3, 37, WIDTH), 1, prims.select(index, 0, 1), x, 1)


def two_indices(x, index):
    rows = prims.select(index, 0, 0), prims.mul(prims.select(index, 0, 1), 0)
    return prims.index_put(zeros(37, 2, WIDTH), rows, prims.select(x, 0, 1), True)


@pytest.mark.parametrize("program", [added, last_wins, each_of_a_batch, two_indices])
def test_rows_have_the_same_bits_on_any_number_of_threads(program) -> None:
    inputs = [torch.randn(3, 300, WIDTH, generator=torch.Generator().manual_seed(1)), INDEX]
    graph = build(lambda *given: (program(*given),), inputs)
    artifact = compile_graph(graph, InductorOptions(parallel_grain=1024))
    assert any("tw_owner(" in k.source.rpartition("tw_fence()")[2] for k in artifact.kernels)
    compiled, before = load(artifact), torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # of eager's threads any may write last
        expected = graph.run(*inputs)
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            torch.testing.assert_close(compiled(list(inputs)), expected, rtol=0, atol=0)
            with pytest.raises(IndexOutOfRange):
                compiled([inputs[0], torch.where(INDEX == 12, 40, INDEX)])
    finally:
        torch.set_num_threads(before)


def test_short_rows_are_put_by_one_thread() -> None:
    inputs = [torch.randn(900, 8), INDEX.reshape(-1)]
    graph = build(lambda x, index: (prims.index_add(zeros(37, 8), 0, index, x, 1),), inputs)
    artifact = compile_graph(graph, InductorOptions(parallel_grain=1024))
    assert not any("omp parallel" in k.source.rpartition("tw_fence()")[2] for k in artifact.kernels if "index_add" in k.source)
    torch.testing.assert_close(load(artifact)(list(inputs)), graph.run(*inputs), rtol=0, atol=0)
