"""SymbolTable and torch.SymInt over our nodes: values, recorded conditions, proofs, specialisation."""

import math
import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tracework_primops import Condition, GuardOnUnbackedError, SymbolTable

BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, torch.sym_max, torch.sym_min]
RELATIONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def plain(function):
    return {torch.sym_max: max, torch.sym_min: min}.get(function, function)


def sized(*hints):
    table = SymbolTable()
    return table, [table.to_symint(table.new(h, f"x.size({i})")) for i, h in enumerate(hints)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(BINARY), st.integers(0, 2), st.integers(1, 5)), max_size=6),
    st.integers(2, 9),
    st.integers(2, 9),
)
def test_operators_have_the_value_of_integers(steps, a, b):
    table, (x, y) = sized(a, b)
    value, expected = x, a
    for function, which, number in steps:
        other, other_value = [(number, number), (x, a), (y, b)][which]
        value, expected = function(value, other), plain(function)(expected, other_value)
    assert table.hint(table.from_symint(value)) == expected
    for relation in RELATIONS:
        assert bool(relation(value, 3)) == relation(expected, 3)
        assert bool(relation(3, value)) == relation(3, expected)
    hints = {s: table.hint(s) for s in table.symbols}
    for recorded in table.conditions:
        assert recorded.condition.evaluate(hints)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-6, 6), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.data())
def test_what_is_proved_holds_for_every_value_the_conditions_allow(p, q, c, op, data):
    table = SymbolTable()
    a, b = table.new(data.draw(st.integers(2, 6)), "a"), table.new(data.draw(st.integers(2, 6)), "b")
    for _ in range(data.draw(st.integers(0, 3))):
        i, j, k = (data.draw(st.integers(-2, 2)) for _ in range(3))
        table.guard(Condition(data.draw(st.sampled_from(["==", "<", ">=", "!="])), i * a + j * b + k))
    question = Condition(op, p * a + q * b + c)
    verdict = table.is_true(question)
    if verdict is None:
        return
    for x in range(2, 9):
        for y in range(2, 9):
            values = {a: x, b: y}
            if all(r.condition.evaluate(values) for r in table.conditions):
                assert question.evaluate(values) == verdict


def test_sizes_of_two_and_more_are_not_asked_about_zero_and_one():
    table, (x,) = sized(8)
    assert x != 0 and x != 1 and x >= 2 and not x == 1
    assert table.conditions == []
    assert [str(r.condition) for r in table.range_conditions()] == ["s0 >= 2"]


def test_conditions_keep_the_users_line_and_are_recorded_once():
    table, (x, y) = sized(8, 8)
    table.origin = "model.py:12 in forward"
    assert x == y and x == y and y == x
    assert x * 3 == y * 3
    assert [str(r) for r in table.conditions] == ["s0 == s1  # model.py:12 in forward"]


def test_int_of_a_symbol_fixes_it():
    table, (x,) = sized(8)
    assert int(x) == 8 and list(range(x)) == list(range(8))
    assert [str(r.condition) for r in table.conditions] == ["s0 == 8"]


def test_floats_and_rounding_of_sizes():
    table, (x,) = sized(9)
    assert table.from_symint(torch.sym_int(x / 2)) is table.from_symint(x) // 2
    assert table.from_symint(math.ceil(x / 2)) is -(-table.from_symint(x) // 2)
    assert table.conditions == []
    assert bool(x / 2 > 4)
    assert math.sqrt(x) == 3.0
    assert [str(r.condition) for r in table.conditions] == ["s0 == 9"]


def test_unbacked_sizes_cannot_be_decided_but_can_be_assumed():
    table = SymbolTable()
    count = table.new(None, "nonzero", lower=0, unbacked=True)
    carried = table.to_symint(count)
    with pytest.raises(GuardOnUnbackedError, match="u0"):
        bool(carried == 3)
    torch._check(carried >= 2)
    assert table.is_true(Condition.compare(">", count, 0)) is True


def test_a_wrong_assumption_is_an_error():
    table, (x,) = sized(8)
    with pytest.raises(RuntimeError, match="does not hold"):
        table.assume(Condition.compare("==", table.from_symint(x), 3))


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 7])
def test_rounding_a_quotient_keeps_the_size(divisor):
    """Of two whole numbers that are as near the even one, as Python rounds."""
    table = SymbolTable()
    symbol = table.new(9)
    size = table.to_symint(symbol)
    found = [table.from_symint(round(size / divisor)), table.from_symint(round(size * (1.0 / divisor)))]
    assert table.conditions == []
    for number in range(2, 60):
        expected = [round(number / divisor), round(number * (1.0 / divisor))]
        assert [each.evaluate({symbol: number}) for each in found] == expected


def test_what_was_recorded_stays_known_in_either_order():
    table = SymbolTable()
    s0, s1, s2, s3 = (table.new(5) for _ in range(4))
    diagonal = table.from_symint(torch.sym_max(0, torch.sym_min(table.to_symint(s0), table.to_symint(s1))))
    assert table.guard(Condition.compare("==", s2, diagonal))
    assert table.guard(Condition.compare("==", s3, 5))
    assert table.is_true(Condition.compare("==", s2, diagonal)) is True
    assert table.is_true(Condition.compare("==", diagonal, s2)) is True
    assert table.is_true(Condition.compare("!=", diagonal, s2)) is False
    assert len(table.conditions) == 2


def test_an_attempt_that_fails_leaves_no_facts():
    table = SymbolTable()
    s0, s1, s2 = (table.new(hint, lower=0) for hint in (6, 3, 2))

    def run():
        table.guard(Condition.compare(">=", s0, s1 + s2))
        raise ValueError

    with pytest.raises(ValueError):
        table.attempt(run)
    assert table.is_true(Condition.compare(">=", s0 + 1, s1 + s2)) is None
    assert not table.conditions
