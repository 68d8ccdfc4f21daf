"""Runs the zoo and writes RESULTS.md: `python -m zoo [--only TEXT] [--mode MODE] [--backend NAME] [--out FILE]`.

Records run in worker processes, a dozen in each, so that one that dies costs nobody else's result.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .records import RECORDS
from .report import write

CHUNK, SECONDS = 12, 900
HERE = Path(__file__).parent


def _work(backend: str, jobs: list[str]) -> None:
    """In a worker: one JSON line for each name=mode."""
    from .check import check

    for job in jobs:
        name, _, mode = job.rpartition("=")
        print(json.dumps(check(name, RECORDS[name], mode, backend).row()), flush=True)


def _rows_of(backend: str, jobs: list[str]) -> Iterator[dict]:
    """The outcomes of a chunk of jobs; the one that killed its worker is reported, the rest starts again."""
    while jobs:
        command = [sys.executable, "-m", "zoo", "--backend", backend, "--work", *jobs]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
            lines, ended = done.stdout, f"the process ended with {done.returncode}"
        except subprocess.TimeoutExpired as error:
            lines, ended = (error.stdout or b"").decode(), f"no result after {SECONDS} s"
        rows = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
        yield from rows
        jobs = jobs[len(rows) :]
        if jobs:
            name, _, mode = jobs[0].rpartition("=")
            yield {"name": name, "mode": mode, "status": "died", "detail": ended}
            jobs = jobs[1:]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("--only", default="", help="records whose name contains this")
    parser.add_argument("--mode", default="", help="inference, training or generate; all when left out")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md")
    parser.add_argument("--work", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        _work(given.backend, given.work)
        return 0
    jobs = [f"{n}={m}" for n, r in RECORDS.items() if given.only in n for m in r.modes if given.mode in ("", m)]
    rows = []
    for start in range(0, len(jobs), CHUNK):
        for row in _rows_of(given.backend, jobs[start : start + CHUNK]):
            rows.append(row)
            print(
                f"{len(rows)}/{len(jobs)} {row['name']} {row['mode']}: {row['status']} {row.get('detail', '')}"[:300], flush=True
            )
    write(rows, given.out)
    return 0 if all(row["status"] in ("equal", "within envelope") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
