"""What bodies of attention read, and check."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_forms import everything
from attention_kernels import CASES, CUDA, F32, SCALE, TABLE, forward_program, operands, run, texts
from tracework_primops import FakeMode, SymbolTable, prims, trace_bodies
from tracework_primops.attention import forward_reference
from triton_programs import graph_of, rendered

# what bodies read of (queries, keys, heads), or in that order
HEADS_INNERMOST = {
    "computed": lambda x: prims.permute(prims.mul(x, 2.0), (2, 0, 1)),
    "in memory": lambda x: prims.permute(x, (2, 0, 1)),
}


@pytest.mark.parametrize("name", HEADS_INNERMOST)
def test_kernels_read_rows_of_keys(name, tmp_path):
    q, k, v, _ = operands(100, 90)
    bias = torch.randn(100, 90, 2)
    given = HEADS_INNERMOST[name]
    mode = FakeMode(SymbolTable())
    read = bias.permute(2, 0, 1).contiguous()
    bodies = trace_bodies(
        lambda s, b, h, i, j, x: s + x[h, i, j], everything, [mode.from_real(read)], F32, torch.device("cpu"), None
    )

    def program(q, k, v, x):
        return prims.attention(q, k, v, (given(x),), (), (), *bodies[:2], SCALE, ())

    (out, *_), kernels = run(program, [q, k, v, bias], tmp_path)
    (kernel,) = [kernel for kernel in kernels.values() if "tl.dot" in kernel.source]
    assert re.search(r"p3 \+ \(9000 \* \w+ \+ 90 \* \w+ \+ \w+\)", kernel.source)
    wanted = forward_reference(q, k, v, [read * (2 if name == "computed" else 1)], [], [], *bodies[:2], SCALE, [])[0]
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("columns", [199, 150])
def test_an_index_that_may_be_out_of_range_is_checked(columns, monkeypatch):
    monkeypatch.setitem(CASES, "relative", (*CASES["relative"][:2], [TABLE[:, :columns]], True))
    graph = graph_of(forward_program(*texts("relative")), *operands()[:3], TABLE[:, :columns], device=CUDA)
    (kernel,) = rendered(graph)[1].values()
    assert ("device_assert" in kernel.source) == dict(kernel.launch).get("checks", False) == (columns == 150)
