"""A fixed sample of numerics.py; `nox -s numerics` runs all of it."""

import pytest
import torch
from numerics import HUGE, PROGRAMS, Case, measure

SAMPLE = [Case(name, axes[n % len(axes)], torch.float32, 16) for n, (name, (_, axes)) in enumerate(PROGRAMS.items())]
SAMPLE += [Case(name, axes, torch.float32, 22) for n, name in enumerate(HUGE) for axes in (("all", "outer")[n % 2],)]
SAMPLE += [Case("mean", "all", torch.bfloat16, 20), Case("softmax", "all", torch.float16, 12)]


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_error_is_near_eagers(case):
    found = measure(case, seeds=0.1)
    assert found.good, found
