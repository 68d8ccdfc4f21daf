"""A module's tests are found by its path: `a/b.py` of a package's source has `tests/*/a/test_b.py`.

modules_without_tests.txt lists those that have none of their own; others test them on the way. The list may only become shorter.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).parent / "modules_without_tests.txt"
WITHOUT = {"__init__.py", "__main__.py", "_version.py"}
"""Names of modules that hold nothing to test."""
PACKAGES = sorted(folder.name for folder in (ROOT / "packages").iterdir() if (folder / "src").is_dir())


def without_tests(package: str) -> set[str]:
    """The modules of a package, from its root, to whose path no test's path answers."""
    folder = ROOT / "packages" / package
    (source,) = (folder / "src").glob("tracework*")
    tests = {Path(*test.relative_to(folder / "tests").parts[1:]) for test in (folder / "tests").rglob("test_*.py")}
    modules = [module.relative_to(source) for module in source.rglob("*.py") if module.name not in WITHOUT]
    return {str(module) for module in modules if module.with_name(f"test_{module.name}") not in tests}


def listed(package: str) -> list[str]:
    return [path for name, path in map(str.split, LIST.read_text().splitlines()) if name == package]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_is_true(package):
    found, known = without_tests(package), set(listed(package))
    assert not found - known, f"modules without a test file of their path: {sorted(found - known)}"
    assert not known - found, f"have tests or are gone, and leave the list: {sorted(known - found)}"


def test_the_list_is_in_order():
    lines = LIST.read_text().splitlines()
    assert lines == sorted(set(lines))
