"""Many numbers that change: what is decided on them does not pile up."""

import random

import torch
import tracework_capture as capture
from tracework_capture.values.symint import MOST_DECISIONS


def in_order(x, numbers):
    y = x + 1
    numbers = sorted(numbers)
    return y * numbers[0], numbers


def test_sorting_many_changing_numbers_is_left_to_python():
    conditions = []

    def backend(gm, example_inputs):
        conditions.append(len(gm.meta["symbols"].conditions))
        return gm.forward

    capture.reset()
    compiled = capture.optimize(backend)(in_order)
    for seed in range(4):
        numbers = random.Random(seed).sample(range(1000), 80)
        (found, order), (expected, wanted) = compiled(torch.ones(2), list(numbers)), in_order(torch.ones(2), numbers)
        torch.testing.assert_close(found, expected)
        assert order == wanted
    assert max(conditions) <= MOST_DECISIONS
