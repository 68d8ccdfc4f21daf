"""Rows that an outer axis reads again: walked in blocks, whole ones or not, with every element as in eager."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp import reuse
from tracework_primops import prims
from tracework_runtime import load


def scaled(x, y):
    return (prims.add(prims.mul(x, prims.expand(y, x.shape)), 1.0),)


@pytest.mark.parametrize("sizes", [(6, 60, 24), (3, 5, 75, 20)], ids=str)
def test_rows_that_all_heads_share(sizes, monkeypatch) -> None:
    monkeypatch.setattr(reuse, "LEAST", 1 << 10)
    monkeypatch.setattr(reuse, "BLOCK", 960)
    made = torch.Generator().manual_seed(0)
    x, y = torch.randn(sizes, generator=made), torch.randn(sizes[-2], 30, generator=made)[:, : sizes[-1]]
    graph = build(scaled, [x, y])
    artifact = compile_graph(graph)
    assert "b += 1" in artifact.kernels[0].source, "ten rows a block, or twelve"
    torch.testing.assert_close(load(artifact)([x, y])[0], graph.run(x, y)[0], rtol=0, atol=0)
