"""Random programs on tensors: compiled and plain runs agree in all that can be seen. `python -m tensor_programs` looks further."""

import random
import warnings

import pytest
from tensor_programs import check, generate

SEEDS = {"aot_eager": range(12), "inductor": range(12, 16)}


@pytest.mark.parametrize(("backend", "seed"), [(backend, seed) for backend, seeds in SEEDS.items() for seed in seeds])
def test_fixed_sample(backend, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(*generate(random.Random(seed)), backend=backend)
