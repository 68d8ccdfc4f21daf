"""The storeys of values/ stand when the package is imported: every module is there, every table sealed."""

from __future__ import annotations

import pkgutil
import sys

import pytest
import torch
from harness import check as capture_and_check
from tracework_capture import values
from tracework_capture.values.protocol.make import make
from tracework_capture.values.protocol.registry import REGISTRIES, Registry
from tracework_capture.values.protocol.value import Value
from tracework_capture.values.protocol.wraps import DERIVED, IN_ORDER

MODULES = [module.name for module in pkgutil.walk_packages(values.__path__, f"{values.__name__}.")]
ASKED_BY_TOOLS = f"{values.__name__}.policy"


def test_each_module_is_imported_with_the_package():
    """The rows of one that is not would be missing."""
    assert {*MODULES} - {*sys.modules} <= {ASKED_BY_TOOLS}


@pytest.mark.parametrize("table", REGISTRIES, ids=lambda table: table.name)
def test_tables_are_sealed(table):
    with pytest.raises(RuntimeError, match="sealed"):
        table["a key"] = None


def values_below(kind=Value):
    for each in kind.__subclasses__():
        yield each
        yield from values_below(each)


@pytest.mark.parametrize("kind", [kind for kind in values_below() if "cls" in vars(kind)], ids=lambda kind: kind.__name__)
def test_the_type_that_a_class_of_values_states_counts(kind):
    """An inherited python_type() that does not ask for cls would hide it."""
    assert "cls" in kind.python_type.__code__.co_names


def test_each_base_has_a_row():
    assert {*DERIVED} == {*IN_ORDER, object}


def test_a_second_row_is_an_error(monkeypatch):
    monkeypatch.setattr("tracework_capture.values.protocol.registry.REGISTRIES", [])
    table = Registry("NUMBERS")
    table.add({1: "one", 2: "two"})
    with pytest.raises(RuntimeError, match="NUMBERS has two rows for 1"):
        table[1] = "another"


def test_a_maker_has_one_owner():
    for slot in ("tuple", "no_such_kind"):
        with pytest.raises(RuntimeError, match=slot):
            make.provide(**{slot: list})


@pytest.mark.parametrize("name", ["shape", "is_cuda", "grad_fn"])
def test_the_getter_of_an_attribute_guards_nothing_of_others(name):
    function = getattr(torch.Tensor, name).__get__
    captured = capture_and_check(lambda x: (x + 1, function(x)), torch.ones(3))
    classes = [str(guard) for guard in captured.guards if guard.kind == "CLASSES"]
    assert not any("is_xpu" in guard or "is_leaf" in guard for guard in classes)
