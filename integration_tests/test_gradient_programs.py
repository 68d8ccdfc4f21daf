"""Random programs that are differentiated: compiled and plain runs agree. `python -m gradient_programs` looks further."""

import random

import pytest
from gradient_programs import check, generate


@pytest.mark.parametrize("seed", range(100))
def test_fixed_sample(seed):
    check(*generate(random.Random(seed)), backend="aot_eager")
