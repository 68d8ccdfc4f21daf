"""A fixed sample of operators.py; `nox -s operators` runs all of op_db."""

import pytest
from operators import ENTRIES, ERRORS, MODES, check

EVERY = 40
MORE = {  # what has once been wrong
    "tanh": "complex64",
    "sigmoid": "complex128",
    "renorm": "complex64",
    "block_diag": "float16",
    "masked.sum": "float32",
    "_batch_norm_with_update": "float32",
    "index_put": "float32",
    "nn.functional.max_pool2d": "dynamic",
    "nn.functional.logsigmoid": "bfloat16",
}
NAMES = sorted(ENTRIES)
SAMPLE = [(name, list(MODES)[i % len(MODES)]) for i, name in enumerate(NAMES[::EVERY])] + list(MORE.items())
SAMPLE += [(name, ERRORS) for name in ("masked_fill", *NAMES[:: 2 * EVERY])]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "mode"), SAMPLE)
def test_equals_eager(name, mode):
    outcome = check(name, mode, samples=2)
    assert outcome.good, outcome
