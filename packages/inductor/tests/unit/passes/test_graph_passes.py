"""GRAPH_PASSES: a graph in which a pass finds nothing is given back as it is, whatever else a pass does."""

import pytest
import torch
from prim_programs import build
from tracework_inductor.passes import GRAPH_PASSES
from tracework_primops import TensorSpec, prims

PLAIN = {
    "elements": (lambda x, y: prims.add(prims.exp(x), y), ((4, 8), (4, 8))),
    "row sums": (lambda x: prims.sum(x, (1,), False), ((4, 8),)),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("step", GRAPH_PASSES, ids=lambda step: step.__name__)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_where_it_finds_nothing_the_graph_is_the_same_object(step, name, device):
    program, shapes = PLAIN[name]
    graph = build(program, [None] * len(shapes), [TensorSpec(torch.float32, torch.device(device, 0), s) for s in shapes])
    assert step(graph) is graph
