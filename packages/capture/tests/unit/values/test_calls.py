"""CALLS: each row says what decides, breaks have reasons, a key has one row, and arguments that do not fit are Python's to refuse."""

import inspect
import linecache
import types

import pytest
import torch
import tracework_capture as capture
from tracework_capture.errors import BREAK_REASONS
from tracework_capture.values.protocol.calls import CALLS, Policy, call
from tracework_capture.values.protocol.registry import Registry


@pytest.mark.parametrize("policy", Policy)
def test_every_row_says_where_its_rule_stands(policy):
    for row in (row for row in CALLS.values() if row.policy is policy):
        path, _, line = row.place.rpartition(":")
        assert "tracework_capture" in path and linecache.getline(path, int(line)).strip(), row.name


def test_breaks_have_reasons_and_others_have_none():
    for row in CALLS.values():
        assert (row.reason in BREAK_REASONS) if row.policy is Policy.BREAK else row.reason is None


def test_a_row_after_the_tables_are_sealed_is_an_error():
    with pytest.raises(RuntimeError, match="CALLS is sealed"):
        call(test_a_row_after_the_tables_are_sealed_is_an_error)(lambda frame, args, kwargs: None)


def test_a_second_row_for_a_key_is_an_error():
    table = Registry("a table")
    table["key"] = 1
    with pytest.raises(RuntimeError, match="a table has two rows for 'key'"):
        table["key"] = 2


def takes_any_keyword(fn):
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


FUNCTIONS = sorted(
    (key for key in CALLS if isinstance(key, types.FunctionType) and not takes_any_keyword(key)), key=lambda fn: CALLS[fn].name
)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: CALLS[fn].name)
def test_arguments_that_a_function_does_not_take(fn):
    def program(x):
        x = x + 1
        try:
            fn(no_such_argument=1)
        except TypeError as error:
            return x, str(error)

    x = torch.ones(2)
    plain = program(x)
    assert plain is not None
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(program)(x)
    assert torch.equal(compiled[0], plain[0]) and compiled[1] == plain[1]
