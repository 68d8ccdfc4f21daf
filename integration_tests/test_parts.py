"""Parts of the rows of tables, of which each pair of the matrix runs one."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def in_part():
    spec = importlib.util.spec_from_file_location("conftest_of_the_root", ROOT / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.in_part


NAMES = ["t.py::alone", *(f"t.py::rows[{row}]" for row in range(60)), "t.py::Class::few[a]", "t.py::Class::few[b]"]


def test_all_parts_together_are_all_rows(in_part):
    parts = [in_part(NAMES, part, 4) for part in range(4)]
    assert set().union(*parts) == {*NAMES}
    assert all(8 < len([name for name in found if "rows" in name]) < 22 for found in parts)


def test_every_part_has_every_function(in_part):
    for part in range(4):
        assert {name.partition("[")[0] for name in in_part(NAMES, part, 4)} == {"t.py::alone", "t.py::rows", "t.py::Class::few"}
