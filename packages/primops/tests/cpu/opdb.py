"""All of op_db against eager, in worker processes that each take a number of entries; writes the table OPDB.md.

python packages/primops/tests/cpu/opdb.py [--only NAME ...] [--columns meta,values,...] [--jobs N] [--state FOLDER] [--report]

Each worker appends to a file of its own in FOLDER as columns of entries are done: a run that was stopped goes on where it
was, and what was measured with other code is measured again. A worker that takes longer than the limit for one column of one
entry is ended, that is reported as a failure, and the next worker goes on.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHARD = 400  # columns of entries that one worker measures
LIMIT = 1200  # seconds for one column of one entry
# what is measured at once, quickest first
STEPS = ("errors", "symbolic", "meta", "variants", "layouts", "out", "empty", "promotion", "values")
# of one entry and dtype, evenly spread; else all
SAMPLES: dict[str, int | None] = {"symbolic": 60, "layouts": 20, "out": 2, "empty": 12, "promotion": 4}
Unit = tuple[str, str]  # an entry and a step


def entry_name(op: Any) -> str:
    """`linalg.norm.subgradients_at_zero`: name and variant."""
    return f"{op.name}.{op.variant_test_name}".rstrip(".")


def measure(op: Any, step: str, limit: int | None = None) -> dict[str, dict]:
    """The columns that a step fills for one entry, with at most so many samples of each dtype."""
    import opdb_checks
    from opdb_symbolic import symbolic

    steps = {
        "meta": opdb_checks.metadata,
        "variants": opdb_checks.variants,
        "layouts": opdb_checks.layouts,
        "out": opdb_checks.outputs,
        "values": opdb_checks.values,
        "empty": opdb_checks.empties,
        "promotion": opdb_checks.promotion,
        "symbolic": symbolic,
        "errors": opdb_checks.errors,
    }
    columns = {
        "meta": ("meta", "aliasing"),
        "layouts": ("layouts", "layout values"),
        "promotion": ("promotion", "promotion values"),
    }.get(step, (step,))
    found = {c: opdb_checks.Count() for c in columns}
    steps[step](op, *found.values(), limit)
    return {name: asdict(count) for name, count in found.items() if count.compared or count.refused}


@functools.cache
def code() -> str:
    """A fingerprint of the package and of the checks: rows of the table that were measured with the same code share it."""
    folders = (HERE.parents[1] / "src", HERE)
    sources = sorted(f for folder in folders for f in folder.rglob("*.py") if f.name not in ("opdb.py", "opdb_report.py"))
    return hashlib.sha256(b"\0".join(f.read_bytes() for f in sources if not f.name.startswith("test_"))).hexdigest()[:12]


def limits_of(samples: int | None) -> dict[str, int | None]:
    """Step -> the most samples of one entry and dtype, None for all."""
    limits = {step: SAMPLES.get(step) for step in STEPS}
    return limits if samples is None else {step: min(samples, n or samples) for step, n in limits.items()}


def work(units: list[Unit], results: Path, samples: int | None) -> None:
    """A worker: one line when a step of an entry begins, one when it is done."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    limits, fingerprint = limits_of(samples), code()
    ops = {entry_name(op): op for op in op_db}
    with results.open("a") as file:
        for entry, step in units:
            print(json.dumps({"begin": [entry, step]}), file=file, flush=True)
            began = time.process_time()
            columns = measure(ops[entry], step, limits[step])
            seconds = round(time.process_time() - began, 2)
            print(json.dumps(_record(entry, step, seconds, columns, fingerprint)), file=file, flush=True)


def _record(entry: str, step: str, seconds: float, columns: dict[str, dict], fingerprint: str) -> dict[str, Any]:
    return {"entry": entry, "step": step, "seconds": seconds, "code": fingerprint, "columns": columns}


def read(state: Path) -> dict[Unit, dict]:
    """The last record of each step of each entry."""
    records = [json.loads(line) for f in sorted(state.glob("*.jsonl")) for line in f.open()]
    return {(r["entry"], r["step"]): r for r in records if "step" in r}


class Worker:
    """A process that measures some units, and the file that it writes to."""

    def __init__(self, units: list[Unit], state: Path, samples: int | None):
        self.results = state / f"{time.time_ns()}.jsonl"
        self.results.touch()
        self.is_late = False
        command = [sys.executable, __file__, "--worker", str(self.results)]
        command += [] if samples is None else ["--samples", str(samples)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(units))
        self.process.stdin.close()

    def is_running(self) -> bool:
        """A process that has written nothing for LIMIT seconds is ended; a unit that did not end is reported as failed."""
        if self.process.poll() is None and time.time() - self.results.stat().st_mtime > LIMIT:
            self.is_late = True
            self.process.kill()
            self.process.wait(60)
        if self.process.poll() is None:
            return True
        self._report_unfinished()
        return False

    def _report_unfinished(self) -> None:
        lines = self.results.read_text().splitlines()
        begun = json.loads(lines[-1]).get("begin") if lines else None
        if begun is None:
            if self.process.returncode:
                raise SystemExit(f"a worker failed with {self.process.returncode} outside an entry")
            return
        entry, step = begun
        ended = self.process.returncode
        what = "took too long" if self.is_late else f"ended the process with {ended}"
        failure = {"compared": 1, "refused": 0, "data": 0, "failed": 1, "examples": [what]}
        with self.results.open("a") as file:
            print(json.dumps(_record(entry, step, LIMIT, {step: failure}, code())), file=file)


def drive(units: list[Unit], state: Path, samples: int | None, jobs: int, keep: bool) -> None:
    """Workers, so many at a time, until everything is measured."""
    state.mkdir(parents=True, exist_ok=True)
    while True:
        done = read(state)
        left = [u for u in units if u not in done or not keep and done[u]["code"] != code()]
        print(f"{len(units) - len(left)} of {len(units)} columns of entries", flush=True)
        if not left:
            return
        count = -(-len(left) // SHARD)
        shards, workers = [left[i::count] for i in range(count)], []
        while shards or workers:
            workers = [w for w in workers if w.is_running()]
            while shards and len(workers) < jobs:
                workers.append(Worker(shards.pop(), state, samples))
            time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="entries, as name.variant; default all")
    parser.add_argument("--columns", default=",".join(STEPS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time; default one for each core")
    parser.add_argument("--state", type=Path, default=Path(".nox", "opdb"), help="folder of results")
    parser.add_argument("--samples", type=int, help="at most so many samples of an entry and dtype, for a quick look")
    parser.add_argument("--keep", action="store_true", help="measure nothing again that was measured with other code")
    parser.add_argument("--report", action="store_true", help="only write OPDB.md from the results")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if options.worker:
        work(json.load(sys.stdin), options.worker, options.samples)
        return 0
    from torch.testing._internal.common_methods_invocations import op_db

    names = [entry_name(op) for op in op_db]
    if options.only:
        names = [n for n in names if n in options.only]
    if not options.report:
        wanted = options.columns.split(",")
        drive([(n, s) for s in STEPS if s in wanted for n in names], options.state, options.samples, options.jobs, options.keep)
    if not options.only:
        from opdb_report import write

        write(read(options.state), HERE / "OPDB.md", limits_of(options.samples), code())
    return 0


if __name__ == "__main__":
    sys.exit(main())
