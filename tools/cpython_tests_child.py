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
import logging
import os
import pickle  # noqa: F401
import pydoc  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import traceback
import types
import unittest
import unittest.mock
import warnings

import test.support.import_helper
import test.support.os_helper
import test.support.script_helper
import test.support.threading_helper
import test.support.warnings_helper
import torch  # noqa: F401

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
IDLE_LIMIT = 5_000  # a forced run interprets every loop


class Result(unittest.TestResult):
    """Remembers what passed."""

    def __init__(self):
        super().__init__()
        self.ok = []

    def addSuccess(self, test):
        """One more test that passed."""
        self.ok.append(test.id())


def run(name):
    """The result of the module; None when it skips itself."""
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName("test." + name)
    except unittest.SkipTest:
        return Result()
    result = Result()
    suite.run(result)
    return result


class Failures(logging.Handler):
    """Counts and shows what capture itself failed at."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def emit(self, record):
        """One record."""
        if record.exc_info:
            self.counts["failed"] = self.counts.get("failed", 0) + 1
            error = record.exc_info[1]
            # reading the lines, too, would call builtins that a test may have patched
            frames = [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]
            where = " < ".join(reversed(frames[-6:]))
            print(record.getMessage(), repr(error)[:200], where, file=sys.__stderr__)


def hooked(counts, forced):
    """`run` with a frame callback for all code but the machinery of the tests."""
    import tracework_primops  # noqa: F401 - tests take modules apart that it imports
    from tracework_capture import _C
    from tracework_capture.hook import cache, context, policy
    from tracework_capture.options import CaptureOptions

    policy._STDLIB = ()
    as_always = policy.frame_is_captured
    skipped = tuple(os.sep + part for part in MACHINERY)

    def is_captured(code):
        return as_always(code) and not any(part in code.co_filename for part in skipped)

    context.frame_is_captured = is_captured

    class Counting(context.FrameCallback):
        def __call__(self, code, *rest):
            counts["frames"] = counts.get("frames", 0) + 1
            answer = super().__call__(code, *rest)
            if isinstance(answer, _C.Entry):
                counts["entries"] = counts.get("entries", 0) + 1
            return answer

    cache.warnings = types.SimpleNamespace(warn=lambda *said, **how: None)  # tests count warnings
    log = logging.getLogger("tracework")  # apart from the records that the tests count
    log.addHandler(Failures(counts))
    log.propagate = False
    options = CaptureOptions(keep_empty=True, idle_limit=IDLE_LIMIT) if forced else CaptureOptions()
    return _C.Scoped(run, Counting(lambda gm, inputs: gm.forward, options))


def main():
    """Run and print."""
    name, mode = sys.argv[1:]
    warnings.simplefilter("ignore")
    counts = {}
    function = run if mode == "plain" else hooked(counts, mode == "forced")
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
