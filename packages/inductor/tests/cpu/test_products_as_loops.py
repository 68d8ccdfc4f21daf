"""A product as a reduction is right without a kernel of its own, too: as a plain loop of a CPU."""

import pytest
import torch
from prim_programs import check
from tracework_inductor.lowering import driver
from tracework_inductor.lowering.row_padding import prim_name
from tracework_primops import prims


@pytest.fixture
def all_are_loops(monkeypatch):
    monkeypatch.setattr(
        driver, "vector_products", lambda graph, role: {n for n in graph.nodes if prim_name(n) in ("mm", "addmm")}
    )


@pytest.mark.parametrize("rows", (1, 3))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("inner", (37, 5000))
def test_equals_the_library(rows, dtype, inner, all_are_loops):
    torch.manual_seed(0)
    x, w, columns, b = (torch.randn(s).to(dtype) for s in ((rows, inner), (21, inner), (inner, 21), (21,)))

    def program(x, w, columns, b):
        return prims.addmm(b, x, prims.permute(w, (1, 0))), prims.relu(prims.mm(x, columns))

    close = {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-1}
    artifact = check(program, x, w, columns, b, **close)
    assert "mm(" not in artifact.host_source
