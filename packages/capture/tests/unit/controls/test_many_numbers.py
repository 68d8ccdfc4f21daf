"""Many numbers that change: what is decided on them does not pile up."""

import random

import torch
import tracework_capture as capture
from tracework_capture.values.number.symint import MOST_DECISIONS, MOST_WEIGHT


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


def date_of(day):
    """The civil calendar, as datetime's Python code computes it: each step uses the one before more than once."""
    n = day - 1
    n400, n = divmod(n, 146097)
    year = n400 * 400 + 1
    n100, n = n // 36524, n % 36524
    n4, n = n // 1461, n % 1461
    n1, n = n // 365, n % 365
    year += n100 * 100 + n4 * 4 + n1
    if n1 == 4 or n100 == 4:
        return year - 1, 12, 31
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    month = (n + 50) // 32
    preceding = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)[month - 1] + (month > 2 and leap)
    if preceding > n:
        month -= 1
        preceding -= 31
    return year, month, n - preceding + 1


def on_that_day(x, day):
    year, month, day = date_of(day)
    return x + year * month + day, year, month, day


def test_what_is_computed_from_a_number_in_many_steps_is_fixed_at_last():
    weights = []

    def backend(gm, example_inputs):
        weights.extend(c.condition.expr.weight for c in gm.meta["symbols"].conditions)
        return gm.forward

    capture.reset()
    compiled = capture.optimize(backend)(on_that_day)
    for day in (730_120, 730_121, 512_345, 12, 700_000):
        (found, *date), (expected, *wanted) = compiled(torch.ones(2), day), on_that_day(torch.ones(2), day)
        torch.testing.assert_close(found, expected)
        assert date == wanted
    assert weights and max(weights) <= 2 * MOST_WEIGHT
