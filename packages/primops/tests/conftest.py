"""Options and the table of counts of primops' tests."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "cpu"))  # the tests share single_op.py

COUNTS = pytest.StashKey[Counter]()


def pytest_addoption(parser):
    parser.addoption("--all-ops", action="store_true", help="primops: all of op_db against eager, not only the fixed sample")


def pytest_configure(config):
    config.stash[COUNTS] = Counter()


@pytest.fixture
def counts(request):
    """ATen calls compared so far, by what they became."""
    return request.config.stash[COUNTS]


def pytest_terminal_summary(terminalreporter, config):
    found = config.stash[COUNTS]
    if found:
        terminalreporter.section("ATen calls of op_db against their decompositions")
        for what in sorted(k for k in found if isinstance(k, str)):
            terminalreporter.line(f"{found[what]:8d}  {what}")
        externs = sorted((n, k[1]) for k, n in found.items() if isinstance(k, tuple) and n)
        terminalreporter.line("left to eager kernels: " + ", ".join(f"{name} {n}" for n, name in reversed(externs)))
