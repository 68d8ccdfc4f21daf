"""What it costs to distribute operators of symbolic sizes; integration_tests/test_distributed_tensors.py has DTensors of them."""

import types

import pytest
from tracework_primops import SymbolTable
from tracework_primops.fake.distributed import Cost, _is_least, _select_min_cost_strategy, _spec_to_bytes


def bytes_of(*sizes):
    return _spec_to_bytes(lambda spec: spec, sum(sizes))


def symbols(*hints):
    table = SymbolTable()
    return table, [table.to_symint(table.new(hint)) for hint in hints]


def test_a_cost_is_a_number_and_a_sum_over_sizes():
    table, (rows, columns) = symbols(6, 4)
    cost = 2 * (bytes_of(rows * columns, rows) / 4) + 1.5
    assert isinstance(cost, Cost) and cost == 16.5 and sorted(cost.form.values()) == [0.5, 0.5, 1.5]
    assert sum([cost, cost], 0.0).form[()] == 3.0
    with pytest.raises(TypeError, match="no sum over sizes"):
        cost - 1


def test_least_for_all_sizes():
    table, (rows,) = symbols(6)
    small, large = bytes_of(rows), bytes_of(rows * 3)
    assert _is_least(small.form, large.form) and not _is_least(large.form, small.form)
    assert not _is_least({(): 20.0}, large.form) and _is_least({(): 0.0}, large.form)


@pytest.mark.parametrize("other, fixed", [(3.0, True), (0.0, False)])
def test_a_choice_that_depends_on_sizes_fixes_them(other, fixed):
    table, (rows,) = symbols(6)
    ways = [types.SimpleNamespace(redistribute_cost=[[cost]]) for cost in (bytes_of(rows), other)]
    chosen = _select_min_cost_strategy(lambda strategy: strategy.strategies[1], types.SimpleNamespace(strategies=ways))
    assert chosen is ways[1]
    assert bool(table.numbers()) is fixed
