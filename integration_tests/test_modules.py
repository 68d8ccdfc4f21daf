"""A fixed sample of modules.py; `nox -s modules` runs all of module_db."""

import pytest
import torch
from modules import check
from torch.testing._internal.common_modules import module_db

EVERY = 5
MORE = ("nn_LSTM", "nn_BatchNorm1d", "nn_MultiheadAttention")  # what has once been wrong
SAMPLE = [info for i, info in enumerate(module_db) if i % EVERY == 0 or info.formatted_name in MORE]


DTYPES = {"nn_Conv1d": torch.complex64, "nn_Linear": torch.complex64, "nn_LayerNorm": torch.bfloat16, "nn_GRU": torch.bfloat16}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", [i for i in module_db if i.formatted_name in DTYPES], ids=lambda info: info.formatted_name)
def test_gradients_in_other_dtypes_equal_eager(info):
    outcome = check(info, True, "inductor", 1, DTYPES[info.formatted_name])
    assert outcome.status.startswith("equal"), outcome


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", SAMPLE, ids=lambda info: info.formatted_name)
def test_gradients_equal_eager(info, training):
    outcome = check(info, training, "aot_eager", samples=2)
    assert outcome.status.startswith(("equal", "refused by eager")), outcome
