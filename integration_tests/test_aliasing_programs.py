"""Inputs in one memory, compiled and plain: a fixed sample. `python -m aliasing_programs` runs all layouts with all programs."""

import pytest
from aliasing_programs import CASES, compare

SAMPLE = CASES[3::17]
# What no graph is made of: other bits, several storages, places that one tensor shows several times, writes that autograd records.
LEFT_TO_EAGER = ("bits", "halves", "array", "windows", "expanded", "history")


@pytest.mark.parametrize("name", SAMPLE)
def test_fixed_sample(name):
    reasons = compare(name, "aot_eager")
    assert not reasons or name.startswith(LEFT_TO_EAGER)


@pytest.mark.parametrize("name", ["overlapping-writes_between", "columns-writes_a_part", "parameter_and_data-writes_second"])
def test_kernels(name):
    assert not compare(name, "inductor")


def test_there_are_two_hundred():
    assert len(CASES) >= 200
