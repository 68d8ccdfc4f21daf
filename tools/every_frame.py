"""A frame callback that every frame of a program goes through, apart from what runs the program's tests."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import types
import unittest.mock

__all__ = ["every_frame"]

IDLE_LIMIT = 5_000  # a forced run interprets every loop


class _Failures(logging.Handler):
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
            text = f"{record.getMessage()} {error!r:.200} {where}"
            self.counts.setdefault("failures", []).append(text)
            print(text, file=sys.__stderr__)


def every_frame(counts, forced, machinery, backend=lambda gm, inputs: gm.forward):
    """A callback for all code but that of files with a part of `machinery` in their paths.

    forced: frames without tensor operations are replaced, too. counts: takes the numbers of frames that were offered, of entries, of graphs
    and of failures of capture itself. torch and the tests' tools have to be imported before.
    """
    import tracework_primops  # noqa: F401 - tests take modules apart that it imports
    from tracework_capture import _C, errors
    from tracework_capture.hook import cache, context, policy
    from tracework_capture.options import CaptureOptions

    for module in (errors, policy):  # the tests lie in Python's own library, and are the program here
        unittest.mock.patch.object(module, "STDLIB", ()).start()
    errors.is_installed_file.cache_clear()
    as_always = policy.frame_is_captured
    skipped = tuple(os.sep + part for part in machinery)

    def is_captured(code, globals_=None):
        return as_always(code, globals_) and not any(part in code.co_filename for part in skipped)

    context.frame_is_captured = is_captured

    class Counting(context.FrameCallback):
        def __call__(self, code, *rest):
            counts["frames"] = counts.get("frames", 0) + 1
            answer = super().__call__(code, *rest)
            if isinstance(answer, _C.Entry):
                counts["entries"] = counts.get("entries", 0) + 1
            return answer

    def counted(gm, inputs):
        counts["graphs"] = counts.get("graphs", 0) + 1
        return backend(gm, inputs)

    cache.warnings = types.SimpleNamespace(warn=lambda *said, **how: None)  # tests count warnings
    log = logging.getLogger("tracework")  # apart from the records that the tests count
    log.addHandler(_Failures(counts))
    log.propagate = False
    options = CaptureOptions(keep_empty=True, idle_limit=IDLE_LIMIT) if forced else CaptureOptions()
    return Counting(counted, options)
