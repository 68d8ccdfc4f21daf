"""Whole programs of prims on a GPU: compile_graph, load, run; plainly and as CUDA graphs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from tracework_inductor import compile_graph
from tracework_runtime import RuntimeOptions, cudagraph, load
from triton_programs import PROGRAMS, graph_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return RuntimeOptions(cache_dir=str(tmp_path_factory.mktemp("gpu") / "cache"))


@pytest.mark.parametrize("graphs", [False, True], ids=["plain", "cudagraph"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name, graphs, options):
    torch.manual_seed(0)
    program, inputs = PROGRAMS[name]
    arguments = [t.cuda() for t in inputs()]
    graph = graph_of(program, *arguments)
    fn = load(compile_graph(graph), options)
    assert fn.artifact.kernels
    if graphs:
        fn = cudagraph(fn, options)
    for _ in range(4):
        expected = graph.run(*[a.clone() for a in arguments])
        for value, wanted in zip(fn(list(arguments)), expected, strict=True):
            rough = wanted.dtype == torch.bfloat16
            torch.testing.assert_close(value, wanted, rtol=2e-2 if rough else 1e-4, atol=2e-2 if rough else 1e-4, equal_nan=True)
        arguments = [a + 0.5 if a.is_floating_point() else a for a in arguments]
