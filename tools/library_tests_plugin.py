"""A plugin of pytest: each test runs as library_tests.py says in TRACEWORK_TESTS, and how it went is written there, too."""

from __future__ import annotations

import json
import os
import sys

import numpy  # noqa: F401 - before the tests are collected: it cannot be loaded twice
import pytest
import torch
from _pytest.doctest import DoctestItem
from every_frame import every_frame

SETTING = json.loads(os.environ["TRACEWORK_TESTS"])
MACHINERY = (
    *("_pytest", "pluggy", "hypothesis", "unittest", "doctest.py", "traceback.py", "linecache.py", "tokenize.py", "importlib"),
    *("subprocess.py", "selectors.py", "tempfile.py"),
)
counts: dict[str, int] = {}
outcomes: dict[str, str] = {}


def _backend():
    if SETTING["backend"] == "graph":
        return lambda gm, inputs: gm.forward
    from tracework import assemble
    from tracework.options import Options

    return getattr(assemble, f"{SETTING['backend']}_backend")(Options(), lambda name, product: None)


callback = every_frame(counts, SETTING["mode"] == "forced", MACHINERY, _backend()) if SETTING["mode"] != "plain" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """The same random numbers in both runs."""
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """The test itself is what is captured, its fixtures are not."""
    if callback is None:
        return
    name = "runtest" if isinstance(item, DoctestItem) else "obj"
    setattr(item, name, callback.wrap(getattr(item, name)))


def pytest_runtest_logreport(report):
    """A test passes when none of its parts fails."""
    if report.failed or (report.when == "call" and report.nodeid not in outcomes):
        outcomes[report.nodeid] = report.outcome if not report.failed else f"failed\n{report.longreprtext[-1500:]}"


def pytest_sessionfinish():
    """What library_tests.py reads."""
    with open(SETTING["into"], "w") as file:
        json.dump({"outcomes": outcomes, "counts": counts}, file)
    sys.stdout.flush()
