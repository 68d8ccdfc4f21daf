"""A sample of libraries.py: programs that use a library by `tracework run` alone. `nox -s libraries` runs all."""

import importlib.util
import re

import libraries
import pytest


@pytest.mark.parametrize("name", ["timm_training", "transformers_generate"])
def test_a_program_has_eagers_results(name):
    if importlib.util.find_spec(library := name.partition("_")[0]) is None:
        pytest.skip(f"{library} is not installed")
    outcome = libraries.run(name)
    assert outcome.is_right, outcome
    assert outcome.graphs > 0 == outcome.breaks == outcome.uncompiled


def test_the_table_has_a_row_of_each_program():
    rows = re.findall(r"^\| (\S+) \| .* \| eager's \|", libraries.TABLE.read_text(), re.MULTILINE)
    assert len(rows) == len(libraries.names()) and len({*rows}) >= 10


def test_a_wrong_value_is_found():
    def error(found, expected):
        return max(libraries._errors(found, expected, 1e-4))

    assert error([1.0, {"a": 2}], [1.0001, {"a": 2}]) < 1
    assert error([1.0], [1.001]) > 1 < error([float("nan")], [1.0])
    assert error([1, "b"], [2, "b"]) == float("inf")


def test_a_row_that_did_not_run_again_is_kept():
    text = libraries.TABLE.read_text()
    rows = {libraries._program(row): row for row in text.splitlines()}
    program, row = next((p, r) for p, r in rows.items() if "| timm" in p)
    newer = row.replace("| eager's |", "| wrong |")
    changed = libraries.table(rows | {program: newer})
    assert newer in changed and row not in changed
    assert [line for line in changed.splitlines() if "eager's" in line] == [
        r for r in rows.values() if "eager's" in r and r != row
    ]
