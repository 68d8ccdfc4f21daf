"""Reductions of all elements in parts: values as close as eager's, the same bits on any number of threads, NaN where there is one."""

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


def dims(x):
    return tuple(range(len(x.sizes)))


def several(x):
    return (
        prims.sum(prims.mul(x, x), dims(x)),
        prims.amax(x, dims(x)),
        prims.amin(x, dims(x)),
        prims.any(prims.gt(x, 2.0), dims(x)),
    )


def written_beside(x):
    y = prims.mul(x, 3.0)
    return prims.sum(y, dims(x)), y


def variance(x):
    return tuple(prims.var_mean(x, dims(x), 1))


def last_ones(x):
    return prims.sum(prims.slice(x, 1, 3, x.sizes[1]), dims(x)), prims.all(prims.gt(x, -100.0), dims(x))


CASES = {
    "several": (several, (70_001,)),
    "of halves": (several, (64, 1024), torch.bfloat16),
    "of float64": (several, (40_000,), torch.float64),
    "written beside": (written_beside, (300, 227)),
    "variance": (variance, (300, 227)),
    "not in one piece": (last_ones, (300, 227)),
    "few long rows": (last_ones, (3, 30_001)),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name) -> None:
    program, sizes, *dtype = CASES[name]
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0)).to(*dtype or [torch.float32])
    graph = build(program, [x])
    artifact = compile_graph(graph, InductorOptions(parallel_grain=1024))
    assert any("s[share]" in k.source for k in artifact.kernels)
    compiled, before, found = load(artifact), torch.get_num_threads(), []
    spoiled = x.clone()
    spoiled[-1] = torch.nan
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append((*compiled([x]), *compiled([spoiled])))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0, equal_nan=True)
    exact = graph.run(x.double())
    for actual, wanted, eager in zip(found[0], exact, graph.run(x)):
        error = (actual.double() - wanted.double()).norm()
        assert error <= max((eager.double() - wanted.double()).norm(), 1e-6 * wanted.double().norm())
    torch.testing.assert_close(found[0][len(exact) :], graph.run(spoiled), equal_nan=True)
