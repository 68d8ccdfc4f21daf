"""A sample of library_results.py: results of library calls are what host programs take them for. `nox -s library_results` runs all."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parent.parent))

import library_results
from tracework_primops import TensorSpec
from tracework_primops.fake import ATEN_META
from tracework_primops.fake.dispatch import forget_plans

NAMES = "block_diag nn.functional.embedding_bag linalg.eigh std_mean sort nn.functional.batch_norm nn.functional.conv2d fft.rfft".split()


@pytest.mark.parametrize("name", NAMES)
def test_results_are_as_promised(name):
    found = library_results.measure([op for op in op_db if op.name == name][:1], samples=1)
    assert not found.wrong and min(found.calls[p] for p in library_results.PROFILES) > 0


def test_a_wrong_rule_is_found(monkeypatch):
    def rule(x, upper=False):
        return TensorSpec(torch.float16, x.device, x.sizes)

    monkeypatch.setitem(ATEN_META, torch.ops.aten.cholesky_inverse.default, rule)
    forget_plans()
    found = library_results.measure([op for op in op_db if op.name == "cholesky_inverse"], samples=1)
    monkeypatch.undo()
    forget_plans()
    assert list(found.wrong) == ["aten.cholesky_inverse.default none", "aten.cholesky_inverse.default prims"]
    assert all("ResultMismatch" in text for text in found.wrong.values())
