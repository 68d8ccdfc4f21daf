"""A fixed sample of modules_on_fakes.py; `nox -s modules_on_fakes` runs all of module_db."""

import pytest
import torch
from modules_on_fakes import SIZES, check
from torch.testing._internal.common_modules import module_db

EVERY = 12
MORE = (
    "nn_MultiLabelMarginLoss",
    "nn_BatchNorm1d",
    "nn_MultiheadAttention",
    "nn_CTCLoss",
    "nn_LSTM",
)  # what has once been wrong, or looks at data
SAMPLE = [info for i, info in enumerate(module_db) if i % EVERY == 0 or info.formatted_name in MORE]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", SAMPLE, ids=lambda info: info.formatted_name)
def test_metadata_equals_eagers(info, training, sizes):
    outcome = check(info, torch.float32, training, sizes, most=4)
    assert outcome.status in ("equal", "depends on data", "refused by eager"), outcome


def test_a_module_that_looks_at_data_is_told_from_a_wrong_one():
    info = next(i for i in module_db if i.formatted_name == "nn_BatchNorm1d")
    assert check(info, torch.float32, True, "static", most=9).status == "depends on data"
    assert check(info, torch.float32, False, "static", most=3).status == "equal"
