"""Runs one module of CPython's tests in this process and prints its results as JSON; started by cpython_tests.py.

    python cpython_tests_child.py test_dict (plain | natural | forced)

plain: without capture. natural: every frame goes through the hook and is treated as in any program, so that frames without tensor
operations are mostly left alone. forced: such frames are interpreted and replaced, too. What the tests' machinery is made of is
imported before that: it is not what is tested.
"""

from __future__ import annotations

import doctest  # noqa: F401
import gc
import io
import json
import os
import pickle  # noqa: F401
import pydoc  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import traceback  # noqa: F401
import unittest
import unittest.mock
import warnings

import test.support.import_helper
import test.support.os_helper
import test.support.script_helper
import test.support.threading_helper
import test.support.warnings_helper
import torch  # noqa: F401
from every_frame import every_frame

MACHINERY = (
    "unittest",
    "doctest.py",
    "traceback.py",
    "linecache.py",
    "tokenize.py",
    "importlib",
    "subprocess.py",
    "selectors.py",
    "tempfile.py",
    os.path.join("test", "support"),
    "site-packages",
)


class Result(unittest.TestResult):
    """Remembers what passed, and left no exception behind that is still being handled."""

    def __init__(self):
        super().__init__()
        self.ok = []

    def addSuccess(self, test):
        """One more test that passed."""
        left = sys.exc_info()
        if left[1] is None:
            self.ok.append(test.id())
        else:
            self.addFailure(test, left)


def run(name):
    """The result of the module; None when it skips itself."""
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName("test." + name)
    except unittest.SkipTest:
        return Result()
    result = Result()
    suite.run(result)
    return result


def main():
    """Run and print."""
    name, mode = sys.argv[1:]
    warnings.simplefilter("ignore")
    counts = {}
    function = run
    if mode != "plain":
        function = every_frame(counts, mode == "forced", MACHINERY).wrap(run)
    gc.freeze()  # what was imported is not walked at each collection that a test asks for
    test.support.verbose = 0
    sys.argv[1:] = []
    out, sys.stdout = sys.stdout, io.StringIO()
    result = function(name)
    sys.stdout = out
    failed = result.failures + result.errors
    texts = {}
    for case, text in failed:
        texts.setdefault(case.id().split(" ")[0], text[-1500:])
    print("RESULT" + json.dumps({"ok": sorted(result.ok), "texts": texts, "counts": counts}))


if __name__ == "__main__":
    main()
