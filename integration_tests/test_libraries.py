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
    assert max(libraries._errors([1.0, {"a": 2}], [1.0001, {"a": 2}])) < 1
    assert max(libraries._errors([1.0], [1.001])) > 1 < max(libraries._errors([float("nan")], [1.0]))
    assert max(libraries._errors([1, "b"], [2, "b"])) == float("inf")
