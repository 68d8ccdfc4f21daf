"""What all suites share: test_*.py of any package, and integration_tests; and the option that takes a part of their rows."""

import gc
import itertools
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="of each parametrised test --below the rows of part K of N, and one at least")
    parser.addoption("--below", metavar="PATH", action="append", default=[], help="where --part takes parts")


def in_part(names: Iterable[str], part: int, parts: int) -> set[str]:
    """The names of tests in a part, which is the same on every machine; of each function one at least. All parts together have all names."""
    found: set[str] = set()
    for _, group in itertools.groupby(sorted(names), lambda name: name.partition("[")[0]):
        rows = [*group]
        chosen = {name for name in rows if zlib.crc32(name.partition("[")[2].encode()) % parts == part}
        found |= chosen or {rows[part % len(rows)]}
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The rows that are not in the part are deselected."""
    if config.getoption("--part") is None:
        return
    part, parts = map(int, config.getoption("--part").split("/"))
    folders = [config.rootpath / path for path in config.getoption("--below")]
    divided = [item.nodeid for item in items if any(Path(item.path).is_relative_to(folder) for folder in folders)]
    left = {*divided} - in_part(divided, part, parts)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def pytest_collection_finish() -> None:
    """What the modules of torch and of the tests hold is there until the end: no collection has to walk through it.

    Tests of lifetimes collect garbage thousands of times; a walk through all that torch imports takes a fifth of a second.
    """
    gc.collect()
    gc.freeze()
