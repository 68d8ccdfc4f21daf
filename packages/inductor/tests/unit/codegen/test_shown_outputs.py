"""Outputs of other sizes than the loop that computes them: their memory is made as what is shown, and no view is."""

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims as p
from tracework_runtime.host.lines import Return

X = torch.arange(24.0).reshape(2, 3, 4)
OUTPUTS = {
    "a place more": (lambda x: p.argmax(p.reshape(x, (6, 4)), 1, True), True),
    "flat": (lambda x: p.reshape(p.neg(x), (24,)), True),
    "turned": (lambda x: p.permute(p.neg(x), (2, 0, 1)), True),
    "twice": (lambda x: (p.reshape(y := p.argmax(x, 2, False), (6,)), y), None),
    "a part": (lambda x: p.slice(p.neg(x), 2, 0, 2, 1), None),
    "repeated": (lambda x: p.expand(p.argmax(x, 2, True), (2, 3, 4)), None),
    "read by the library": (lambda x: (p.reshape(y := p.neg(x), (6, 4)), p.sort(y, 2, False, True)[0]), None),
    "none of it": (lambda x: p.reshape(p.slice(p.neg(x), 2, 0, 0, 1), (3, 0)), None),
}
"""A program, and whether its results are names; None where that is not the question."""


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name):
    program, bare = OUTPUTS[name]
    graph = build(program, [X])
    artifact = compile_graph(graph)
    (given,) = (line.values for line in artifact.host_lines if isinstance(line, Return))
    if bare is not None:
        assert all(value.isidentifier() for value in given) == bare
    ways = runtime.load(artifact), runtime.load(artifact.replace(host_lines=()))
    for way in ways:
        for got, wanted, output in zip(way([X.clone()]), graph.run(X.clone()), graph.outputs, strict=True):
            spec = output.meta["spec"]
            assert torch.equal(got, wanted) and got.shape == wanted.shape and got.stride() == tuple(spec.strides)
            assert got._base is None and got._version == 0
