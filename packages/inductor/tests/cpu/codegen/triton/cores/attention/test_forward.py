"""Results of attention: parts of the keys, golden text."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_kernels import BF16, CASES, CUDA, check_values, forward_program, texts
from tracework_inductor.codegen.triton.cores.attention import config
from triton_programs import graph_of, rendered

TESTS = Path(__file__).parents[5]


@pytest.mark.parametrize("name", ["causal", "documents", "soft-cap", "rows and keys", "a low number in some rows"])
def test_programs_share_the_keys_of_few_queries(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tracework_inductor.codegen.triton.cores.attention.forward.LEAST_STEPS", 1)
    monkeypatch.setitem(CASES, "documents", (*CASES["documents"][:2], [torch.arange(200) // 30], False))
    kernels = check_values(name, tmp_path, 1e-5, queries=44, keys=200, out_width=24)
    assert "keys in 4 parts" in dict(kernels[0].launch)["kind"]


@pytest.mark.parametrize("name", ["causal", "soft-cap"])
@pytest.mark.parametrize("shape", ["whole blocks", "a border", "heads inside"])
def test_keys_and_values_by_descriptors(name, shape, tmp_path, monkeypatch):
    for table in (config.WIDE_FORWARD, config.WIDE_BACKWARD):
        monkeypatch.setitem(table, 64, (32, 16, 4, 2, True))
    sizes = {"whole blocks": (32, 64, False), "a border": (40, 50, False), "heads inside": (30, 50, True)}
    queries, keys, inside = sizes[shape]
    kernels = check_values(name, tmp_path, 1e-5, queries=queries, keys=keys, inside=inside)
    of_keys = [dict(kernel.launch).get("by_alignment", False) for kernel in kernels]
    assert of_keys == [True, True, False] and "k_rows.load" in kernels[0].source


def golden():
    like = [torch.empty(1, heads, 4096, 64, dtype=BF16, device="meta") for heads in (8, 2, 2)]
    (kernel,) = rendered(graph_of(forward_program(*texts("window")), *like, device=CUDA))[1].values()
    return kernel.source


def test_golden():
    assert golden() == (TESTS / "golden" / "triton" / "attention.txt").read_text()


if __name__ == "__main__":
    (TESTS / "golden" / "triton" / "attention.txt").write_text(golden())
