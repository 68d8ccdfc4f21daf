"""The storeys of values/ stand when the package is imported: every module is there, every table sealed."""

from __future__ import annotations

import pkgutil
import sys

import pytest
from tracework_capture import values
from tracework_capture.values.protocol.registry import REGISTRIES
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


def test_each_base_has_a_row():
    assert {*DERIVED} == {*IN_ORDER, object}
