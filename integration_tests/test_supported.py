"""What the README, SUPPORTED.md, the packages and `nox -s matrix` say of supported versions is the same."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tools import supported

ROOT = Path(__file__).parents[1]
PROJECTS = {path.parent.name: tomllib.loads(path.read_text())["project"] for path in ROOT.glob("packages/*/pyproject.toml")}
ROWS = supported.read()


def pairs():
    """(CPython, torch, triton) of each Pair in noxfile.py, which cannot be imported without nox."""
    calls = [node for node in ast.walk(ast.parse((ROOT / "noxfile.py").read_text())) if isinstance(node, ast.Call)]
    return [tuple(map(ast.literal_eval, call.args)) for call in calls if getattr(call.func, "id", None) == "Pair"]


PYTHONS, TORCHES, TRITONS = map(sorted, zip(*pairs(), strict=True))


def minors(versions):
    """The minor versions, the lowest first, of versions."""
    return sorted({tuple(supported.numbers(v)[:2]) for v in versions})


def claimed(requirement, major):
    """The minor versions below 30 that a range admits."""
    specifiers = SpecifierSet(re.sub(r"^[\w-]+", "", requirement))
    return [(major, minor) for minor in range(30) if f"{major}.{minor}.5" in specifiers]


def requirement(requirements, name):
    (found,) = [r for r in requirements if re.match(rf"{name}\W", r)]
    return found


def test_the_table_of_the_readme_is_made_from_the_list():
    text = (ROOT / "README.md").read_text()
    assert text.partition(supported.BEGIN)[2].partition(supported.END)[0] == supported.readme_table(ROWS)


def test_the_list_is_of_the_matrix_and_without_failures():
    assert {(row.cpython, row.torch, row.triton) for row in ROWS} <= {*pairs()}
    assert [row for row in ROWS if row.failed] == []


@pytest.mark.parametrize("package", PROJECTS)
def test_the_matrix_has_each_python_and_both_ends_of_torch(package):
    project = PROJECTS[package]
    torch = claimed(requirement(project["dependencies"], "torch"), 2)
    tested = minors(TORCHES)
    assert minors(PYTHONS) == claimed(project["requires-python"], 3) and (tested[0], tested[-1]) == (torch[0], torch[-1])


def test_the_matrix_has_every_triton():
    extras = PROJECTS["runtime"]["optional-dependencies"]
    assert minors(TRITONS) == claimed(requirement(extras["triton"], "triton"), 3)


def test_reports_are_added_and_written(tmp_path, monkeypatch):
    report = '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"></testsuite></testsuites>'
    paths = [str(tmp_path / name) for name in ("a.xml", "b.xml")]
    for path in paths:
        Path(path).write_text(report)
    monkeypatch.setattr(supported, "SUPPORTED", tmp_path / "SUPPORTED.md")
    monkeypatch.setattr(supported, "README", tmp_path / "README.md")
    monkeypatch.setattr(supported.metadata, "version", {"torch": "2.14.1+cpu", "triton": "3.8.0"}.__getitem__)
    supported.README.write_text(f"before {supported.BEGIN}old{supported.END} after")
    assert supported.main([*paths, "--write"]) == 1
    (row,) = supported.read()
    assert (row.torch, row.triton, row.passed, row.failed, row.skipped) == ("2.14.1", "3.8.0", 10, 4, 4)
    text = supported.README.read_text()
    assert text == f"before {supported.BEGIN}{supported.readme_table([row])}{supported.END} after" and "10 pass, 4 fail" in text
