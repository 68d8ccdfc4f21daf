"""A fixed sample of the entries of op_gradients.py; `nox -s gradients` runs all of them."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import op_gradients

EVERY = 20  # each twentieth entry
# what has once been wrong
MORE = (
    "stft fft.hfft quantile native_group_norm _native_batch_norm_legit nn.functional.rrelu nn.functional.multi_margin_loss "
    "nn.functional.multilabel_margin_loss nn.functional.fractional_max_pool3d nn.functional.linear_cross_entropy tensor_split "
    "_batch_norm_with_update combinations corrcoef index_fill index_put linalg.lstsq nn.functional.ctc_loss "
    "tanh sigmoid nn.functional.tanhshrink renorm masked.normalize svd"
).split()
ENTRIES = op_gradients.differentiable()
SAMPLE = [op for i, op in enumerate(ENTRIES) if i % EVERY == 0 or op_gradients.name_of(op) in MORE]


@pytest.fixture(autouse=True)
def silent(caplog):
    """Refusals are outcomes here."""
    caplog.set_level("ERROR", logger="tracework.fallbacks")


@pytest.mark.parametrize("op", SAMPLE, ids=op_gradients.name_of)
def test_gradients_equal_eager(op):
    for dtype in op_gradients.dtypes_of(op):
        outcome = op_gradients.check(op, dtype, samples=2)
        assert outcome.accepted, outcome


def test_an_uncompiled_entry_is_told_from_a_wrong_one():
    outcome = op_gradients.check(next(op for op in ENTRIES if op.name == "masked_select"), torch.float64)
    assert outcome.status == "uncompiled" and outcome.accepted
