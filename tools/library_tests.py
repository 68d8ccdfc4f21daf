"""The tests of other libraries with every frame of them going through capture: the same tests pass as without it.

    python tools/library_tests.py [--forced] [--backend NAME] [--write] [--verbose] [TESTS ...]

TESTS are modules (numpy.lib) or folders and files of an unpacked source distribution (gpytorch/test/kernels), whose library has to be
installed. They run twice under pytest, in a process of its own each: plainly, and with all code offered to capture but that of the
testing tools. By default frames without tensor operations are left alone, as in any program; --forced replaces them, too. --backend says
what becomes of graphs: graph (they run as they are), aot_eager or inductor. The exit status is 1 when a test is lost or pytest does not
end. --write renews the rows of what ran in the committed table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE / "library_tests.txt"
HEADER = (
    "# tests of other libraries that pass plainly, and with every frame captured; frames offered, captured, graphs, failures of capture\n"
    "# itself (the frame then runs plainly); forced: frames without tensor operations are replaced, too\n"
    "# tests                                              mode   backend    plain capt.  frames captured graphs failed\n"
)
LIMIT = 3600
"""Seconds for one run."""


def run(tests: str, mode: str, backend: str) -> dict[str, object]:
    """Outcomes and counts; {"crash": text} where pytest did not come to its end."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder, "outcomes.json")
        setting = json.dumps({"mode": mode, "backend": backend, "into": str(into)})
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "TRACEWORK_TESTS": setting, "PYTHONPATH": os.pathsep.join(paths)}
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "pytest",
            "-p",
            "library_tests_plugin",
            "-p",
            "no:cacheprovider",
            "-q",
        ]
        command += ["-c", os.devnull, "--rootdir", os.sep, "-W", "ignore", "-p", "no:xdist"]
        command += [tests] if Path(tests).exists() else ["--pyargs", tests]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False)
        except subprocess.TimeoutExpired:
            return {"crash": f"no end after {LIMIT} s"}
        if not into.exists():
            return {"crash": f"exit {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"}
        return {**json.loads(into.read_text()), "stderr": done.stderr[-4000:]}


def compare(tests: str, mode: str, backend: str, verbose: bool) -> tuple[bool, str]:
    """(same, row of the table)."""
    name = "/".join(Path(tests).parts[-3:]) if Path(tests).exists() else tests
    plain, captured = run(tests, "plain", "graph"), run(tests, mode, backend)
    for kind, result in (("plainly", plain), ("captured", captured)):
        if "crash" in result:
            return False, f"{name:52} does not end {kind}: {' '.join(str(result['crash'])[-600:].split())}"
    passed = [{test for test, how in each["outcomes"].items() if how == "passed"} for each in (plain, captured)]
    lost, counts = sorted(passed[0] - passed[1]), captured["counts"]
    if verbose:
        for test in lost:
            print(f"--- {test}\n{captured['outcomes'].get(test, 'not run')}")
        print(*counts.get("failures", ()), captured["stderr"], sep="\n")
    numbers = [counts.get(key, 0) for key in ("frames", "entries", "graphs", "failed")]
    row = f"{name:52} {mode:7} {backend:9} {len(passed[0]):6} {len(passed[1]):6} {numbers[0]:7} {numbers[1]:7} {numbers[2]:6} {numbers[3]:5}"
    return bool(passed[0]) and not lost, row + (f"  LOST {' '.join(lost)}" if lost else "")


def write(row: str) -> None:
    """Renew a row of the committed table."""
    old = TABLE.read_text().splitlines() if TABLE.exists() else []
    rows = {tuple(line.split()[:3]): line for line in old if not line.startswith("#")}
    rows[tuple(row.split()[:3])] = row
    TABLE.write_text(HEADER + "\n".join(rows[key] for key in sorted(rows)) + "\n")


def main() -> int:
    """Run, print, perhaps write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--forced", action="store_true", help="replace frames without tensor operations, too")
    parser.add_argument("--backend", choices=("graph", "aot_eager", "inductor"), default="graph")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    all_same = True
    for tests in given.tests:
        same, row = compare(tests, "forced" if given.forced else "natural", given.backend, given.verbose)
        all_same &= same
        print(row, flush=True)
        if given.write:
            write(row)
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main())
