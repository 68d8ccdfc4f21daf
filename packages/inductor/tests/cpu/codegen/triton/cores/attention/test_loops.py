"""Blocks of attention that are skipped, and that need no mask: Triton's interpreter against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_forms import block_mask
from attention_kernels import CASES, DOCUMENTS, check_values
from tracework_inductor.codegen.triton.cores.attention import config as core


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, tmp_path):
    kernels = check_values(name, tmp_path, 1e-5)
    assert all(("unsure" in kernel.source) == CASES[name][3] for kernel in kernels if name != "not a band")


def test_a_block_mask_is_read_where_bounds_know_too_little(tmp_path, monkeypatch):
    for table in (core.WIDE_FORWARD, core.WIDE_BACKWARD):
        monkeypatch.setitem(table, 64, (16, 16, 4, 1))
    i = torch.arange(96)
    monkeypatch.setitem(CASES, "documents", (*CASES["documents"][:2], [DOCUMENTS[:96]], False))
    mask = (DOCUMENTS[:96, None] == DOCUMENTS[:96]) & (i[:, None] >= i)
    blocks = block_mask(mask, 16, 32)
    kernels = check_values("documents", tmp_path, 1e-5, blocks, (16, 32), queries=96, keys=96)
    assert all("partial" in kernel.source and "full" in kernel.source for kernel in kernels)
    assert all("partial" not in k.source for k in check_values("causal", tmp_path, 1e-5, blocks, (16, 32), queries=96, keys=96))
