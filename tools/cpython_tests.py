"""CPython's own tests with every frame of them going through capture: the same tests pass as without it.

    python tools/cpython_tests.py [--sample] [--force] [--write] [MODULE ...]

Each module runs twice in a process of its own, plainly and with a frame callback installed for the thread. All code but the machinery
of the tests is offered to capture: frames are captured, broken or left alone, as in any program. The table of results is committed
as tools/cpython_tests.txt; --write renews it, and the exit status is 1 when a module behaves differently under capture.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).with_suffix(".txt")
SAMPLE = ("grammar", "generators", "contextlib", "unpack", "scope", "super", "with", "dataclasses")
MODULES = (
    "grammar dict list set tuple generators genexps listcomps setcomps dictcomps exceptions contextlib functools itertools collections "
    "dataclasses enum descr class with patma scope super unpack unpack_ex string format fstring float int complex math iter sort copy "
    "typing inspect bool slice range enumerate operator augassign binop compare decorators extcall funcattrs keywordonlyarg "
    "positional_only_arg named_expressions opcodes property raise richcmp userdict userlist userstring weakref yield_from contains deque "
    "defaultdict ordered_dict metaclass subclassinit abc bisect heapq textwrap types global exception_variations baseexception "
    "exception_hierarchy exception_group pow"
).split()

CHILD = """
import io, json, sys, unittest, warnings
name, hooked = sys.argv[1], sys.argv[2] == "hooked"
warnings.simplefilter("ignore")
import torch
counts = {}
if hooked:
    from tracework_capture import _C
    from tracework_capture.hook import context, policy
    import os.path
    policy._STDLIB = ()
    skipped = tuple(os.sep + p for p in ("unittest", "traceback.py", "linecache.py", "tokenize.py", "importlib", os.path.join("test", "support"), "site-packages"))
    plain = policy.frame_is_captured
    def captured(code):
        return not code.co_filename.startswith("<frozen") and not any(s in code.co_filename for s in skipped)
    context.frame_is_captured = captured
    from tracework_capture.options import CaptureOptions
    class Counting(context.FrameCallback):
        def __call__(self, code, *rest):
            counts["frames"] = counts.get("frames", 0) + 1
            answer = super().__call__(code, *rest)
            kind = "entries" if isinstance(answer, _C.Entry) else "plain"
            counts[kind] = counts.get(kind, 0) + 1
            return answer
    import logging
    class Failed(logging.Handler):
        def emit(self, record):
            if record.exc_info:
                counts["failed"] = counts.get("failed", 0) + 1
                print(record.getMessage(), repr(record.exc_info[1])[:200], file=sys.__stderr__)
    log = logging.getLogger("tracework.capture")
    log.addHandler(Failed()); log.propagate = False
    callback = Counting(lambda gm, inputs: gm.forward, CaptureOptions(keep_empty=sys.argv[3] == "force"))
    from tracework_capture.hook import compile_frame
    attempt = compile_frame.attempt
from test import support
support.verbose = 0
class Result(unittest.TestResult):
    def __init__(self):
        super().__init__(); self.ok = []
    def addSuccess(self, test):
        self.ok.append(test.id())
def run():
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName("test." + name)
    except unittest.SkipTest:
        return None
    result = Result()
    suite.run(result)
    return result
run = _C.Scoped(run, callback) if hooked else run
out, sys.stdout = sys.stdout, io.StringIO()
result = run()
sys.stdout = out
bad = sorted({t.id() if hasattr(t, "id") else str(t) for t, _ in result.failures + result.errors})
texts = {t.id() if hasattr(t, "id") else str(t): x[-1200:] for t, x in result.failures + result.errors}
print("RESULT" + json.dumps({"ok": sorted(result.ok), "bad": bad, "texts": texts, "counts": counts}))
"""  # noqa: E501


def run_module(name: str, hooked: bool, force: bool = False) -> dict[str, object]:
    """Results of one module in a fresh process; {"crash": text} when it did not come to its end."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-c",
        CHILD,
        f"test_{name}",
        "hooked" if hooked else "plain",
        "force" if force else "",
    ]
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, check=False)
    except subprocess.TimeoutExpired:
        return {"crash": "timeout"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            return {**json.loads(line[6:]), "stderr": done.stderr[-2000:]}
    return {"crash": f"exit {done.returncode}: {done.stderr[-1500:]}"}


def compare(name: str, verbose: bool, force: bool) -> tuple[bool, str]:
    """(same, row of the table)."""
    plain, hooked = run_module(name, False), run_module(name, True, force)
    for kind, result in (("plainly", plain), ("captured", hooked)):
        if "crash" in result:
            return kind == "plainly", f"{name:28} crashed {kind}: {str(result['crash'])[-600:]}"
    lost = sorted(set(plain["ok"]) - set(hooked["ok"]))
    counts = hooked["counts"]
    if verbose:
        for test in lost:
            print(f"--- {test}\n{hooked['texts'].get(test, '')}")
        print(hooked["stderr"])
    row = (
        f"{name:28} {len(plain['ok']):5} pass, {len(hooked['ok']):5} under capture, {len(plain['bad']):3} fail without capture, "
        f"{counts.get('frames', 0):6} frames offered, {counts.get('entries', 0):4} captured, {counts.get('failed', 0)} failures of capture"
    )
    return not lost, row + (f"; LOST {', '.join(lost)}" if lost else "")


def main() -> int:
    """Run, print, perhaps write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--force", action="store_true", help="replace frames without tensor operations, too")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    names = given.modules or (SAMPLE if given.sample else MODULES)
    rows, all_same = [], True
    for name in names:
        same, row = compare(name, given.verbose, given.force)
        all_same &= same
        rows.append(row)
        print(row, flush=True)
    if given.write:
        TABLE.write_text(f"CPython {sys.version.split()[0]}\n" + "\n".join(rows) + "\n")
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main())
