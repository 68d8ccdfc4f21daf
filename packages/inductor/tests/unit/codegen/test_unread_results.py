"""Results of library calls that nobody reads: they are not asked to be tensors, and their memory is not used again."""

import operator
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
from tracework_inductor import compile_graph
from tracework_primops import PrimGraph, TensorSpec
from tracework_runtime import load

SIZES = (4, 4)
LIBRARY = torch.library.Library("tracework_unread", "DEF")
LIBRARY.define("three(Tensor x) -> (Tensor, Tensor, Tensor)")


@torch.library.impl(LIBRARY, "three", "CPU")
def three(x):
    """x + 1 and x + 3; between them what a kernel gives that leaves a result out: nothing of the size that its fake names."""
    return x + 1, x.new_empty(0), x + 3


@pytest.mark.parametrize("read", [(0,), (2,), (0, 2), ()], ids=str)
def test_only_what_is_read_is_compared(read):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["spec"] = spec = TensorSpec(torch.float32, torch.device("cpu"), SIZES, (4, 1))
    called = graph.call_function(torch.ops.tracework_unread.three.default, (x,))
    called.meta["spec"] = (spec, spec, spec)
    parts = [graph.call_function(operator.getitem, (called, n)) for n in range(3)]
    for part in parts:
        part.meta["spec"] = spec
    graph.output(tuple(parts[n] for n in read))
    value = torch.randn(SIZES)
    found = load(compile_graph(PrimGraph.from_fx(graph)))([value])
    assert [torch.equal(got, value + (1 + n)) for got, n in zip(found, read, strict=True)] == [True] * len(read)
