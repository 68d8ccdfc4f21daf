"""Results of attention: parts of the keys, golden text."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_kernels import BF16, CASES, CUDA, check_values, forward_program, texts
from triton_programs import graph_of, rendered

TESTS = Path(__file__).parents[5]


@pytest.mark.parametrize("name", ["causal", "documents", "soft-cap", "rows and keys", "a low number in some rows"])
def test_programs_share_the_keys_of_few_queries(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tracework_inductor.codegen.triton.cores.attention.forward.LEAST_STEPS", 1)
    monkeypatch.setitem(CASES, "documents", (*CASES["documents"][:2], [torch.arange(200) // 30], False))
    kernels = check_values(name, tmp_path, 1e-5, queries=44, keys=200, out_width=24)
    assert "keys in 4 parts" in dict(kernels[0].launch)["kind"]


def golden():
    like = [torch.empty(1, heads, 4096, 64, dtype=BF16, device="meta") for heads in (8, 2, 2)]
    (kernel,) = rendered(graph_of(forward_program(*texts("window")), *like, device=CUDA))[1].values()
    return kernel.source


def test_golden():
    assert golden() == (TESTS / "golden" / "triton" / "attention.txt").read_text()


if __name__ == "__main__":
    (TESTS / "golden" / "triton" / "attention.txt").write_text(golden())
