"""A fixed sample of tools/solver_check.py (all of it: nox -s solver), and statements that must be proved."""

import sys
from pathlib import Path

import pytest
import torch
from tracework_primops import Condition, SymbolTable, floordiv, maximum, mod

sys.path.insert(0, str(Path(__file__).parents[5] / "tools"))
from solver_check import run_system


def test_verdicts_on_random_systems_hold_for_all_values():
    outcomes = [run_system(seed) for seed in range(600)]
    assert [o.text for o in outcomes if o.is_wrong] == []
    decidable = [o for o in outcomes if o.truth is not None]
    assert sum(o.verdict is not None for o in decidable) >= 0.9 * len(decidable)


@pytest.fixture
def sizes():
    table = SymbolTable()
    return table, [table.new(hint, f"x.size({i})") for i, hint in enumerate((8, 12, 3))]


def compare(op, left, right):
    return Condition.compare(op, left, right)


PROVED = {
    "parity": (lambda a, b, c: [], lambda a, b, c: compare("!=", 2 * a, 2 * b + 1)),
    "chain": (lambda a, b, c: [compare("<=", c, a), compare("<=", a, b)], lambda a, b, c: compare(">=", b, c)),
    "sum": (lambda a, b, c: [compare(">=", b, a), compare(">", a, c)], lambda a, b, c: compare(">=", a + b, 2 * c + 2)),
    "whole": (lambda a, b, c: [compare("==", mod(a, 4), 0)], lambda a, b, c: compare("==", floordiv(a, 4) * 4, a)),
    "viewed": (lambda a, b, c: [compare("==", floordiv(b, 4) * 4, b)], lambda a, b, c: compare("==", mod(b, 4), 0)),
    "multiple": (lambda a, b, c: [compare("==", mod(a, 4), 0)], lambda a, b, c: compare("==", mod(2 * a, 8), 0)),
    "square": (lambda a, b, c: [], lambda a, b, c: compare(">=", a * a, 2 * a)),
    "quotient": (lambda a, b, c: [], lambda a, b, c: compare("<=", 3 * floordiv(a, 3), a)),
    "largest": (lambda a, b, c: [], lambda a, b, c: compare(">=", maximum(a, b) + c, b + 2)),
    "substituted": (lambda a, b, c: [compare("==", b, a + 4)], lambda a, b, c: compare(">=", b, 6)),
    "not_zero_or_one": (lambda a, b, c: [], lambda a, b, c: compare("!=", a * b, 1)),
}


@pytest.mark.parametrize("name", PROVED)
def test_follows_without_a_new_condition(name, sizes):
    table, symbols = sizes
    given, question = PROVED[name]
    for condition in given(*symbols):
        assert table.guard(condition)
    count = len(table.conditions)
    assert table.is_true(question(*symbols)) is True
    assert table.is_true(question(*symbols).negate()) is False
    assert len(table.conditions) == count


def test_what_is_not_known_is_left_to_run_time(sizes):
    table, (a, b, c) = sizes
    for question in (compare("==", a, b), compare(">", a, 5), compare("==", mod(a, 2), 0), compare("<", a * c, b)):
        assert table.is_true(question) is None
    assert table.conditions == []


def test_stated_facts_about_unbacked_sizes_prove_others():
    table = SymbolTable()
    count, total = (table.new(None, name, lower=0, unbacked=True) for name in ("nonzero", "sum"))
    carried = table.to_symint(count)
    torch._check(carried >= 4)
    torch._check(carried % 4 == 0)
    torch._check(table.to_symint(total) == 2 * carried + 1)
    assert table.is_true(compare("==", floordiv(count, 4) * 4, count)) is True
    assert table.is_true(compare(">=", total, 9)) is True
    assert table.is_true(compare("==", mod(total, 2), 0)) is False
    assert table.is_true(compare("==", count, 8)) is None
