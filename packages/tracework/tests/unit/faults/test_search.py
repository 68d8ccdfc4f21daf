"""Searches find the calls at fault, and do not look at the whole again and again."""

import torch
import tracework
from tracework.faults.program import Program
from tracework.faults.search import at_lines, first, narrowed, place_of


def chain(x):
    for _ in range(16):
        x = x.sin() + 1
    return x.atan().exp()


def program(function=chain):
    (case,) = tracework.case(function)(torch.ones(3))
    return Program.of(case.graph(), case.level, case.inputs)


def test_half_of_the_calls_again_and_again():
    whole, seen = program(), []

    def fails(part):
        seen.append(len(part.calls))
        return any(n.target == "atan" for n in part.calls)

    found = narrowed(whole, fails)
    assert [n.target for n in found.calls] == ["atan"] and found.run()[0].shape == (3,)
    assert sum(seen) <= 2 * len(whole.calls) + 2 and len(seen) < 16


def test_what_two_calls_do_together_stays():
    def fails(part):
        names = [str(n.target) for n in part.calls]
        return names.count("sin") >= 9 and "exp" in names

    whole = program()
    assert narrowed(whole, fails) is whole


def test_calls_at_the_lines_of_a_later_stage():
    whole = program()
    places = {f"{place_of(n)} atan" for n in whole.calls if n.target == "atan"}
    part = at_lines(whole, places, whole.values(copies=True))
    assert [n.target for n in part.calls] == ["atan", "exp"]
    assert at_lines(whole, {"elsewhere.py:1"}, {}) is None


def test_first():
    for few in (False, True):
        assert [first(range(9), lambda n: n >= least, few) for least in range(9)] == list(range(9))
