"""All of op_db against eager, in worker processes that each take a number of entries; writes the table OPDB.md.

python packages/primops/tests/cpu/opdb.py [--only NAME ...] [--columns meta,values,symbolic,errors] [--results FILE] [--report]

Results are appended to FILE as entries are done: a run that was stopped goes on where it was. A worker that takes
longer than the time limit for one entry is ended, the entry is reported as such, and the next worker goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARD = 60  # entries of one worker
LIMIT = 300  # seconds for one entry
LIMITS = {"meta": 200, "variants": 4, "values": 25, "symbolic": 60}  # samples of one entry and dtype, evenly spread
COLUMNS = ("meta", "aliasing", "variants", "values", "symbolic", "errors")


def entry_name(op) -> str:
    """`linalg.norm.subgradients_at_zero`: name and variant."""
    return f"{op.name}.{op.variant_test_name}".rstrip(".")


def measure(op, columns: set[str], limits: dict[str, int | None] = LIMITS) -> dict:
    """The columns of one entry, with at most so many samples of each dtype."""
    from opdb_checks import Count, dtypes_of, errors, metadata, values
    from opdb_symbolic import symbolic

    found = {c: Count() for c in COLUMNS}
    dtypes = dtypes_of(op)
    if "meta" in columns:
        metadata(op, op.op, dtypes, found["meta"], found["aliasing"], limits["meta"])
        variant = op.get_inplace()
        if variant is not None:
            metadata(op, variant, dtypes, found["variants"], found["variants"], limits["variants"])
    if "values" in columns:
        values(op, dtypes, found["values"], limits["values"])
    if "symbolic" in columns:
        symbolic(op, found["symbolic"], limits["symbolic"])
    if "errors" in columns:
        errors(op, found["errors"])
    return {name: asdict(count) for name, count in found.items() if count.compared or count.refused}


def work(names: list[str], columns: set[str], results: Path, samples: int | None) -> None:
    """A worker: one line when an entry begins, one when it is done."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    wanted = set(names)
    limits = LIMITS if samples is None else {c: min(samples, n) for c, n in LIMITS.items()}
    with results.open("a") as file:
        for op in op_db:
            name = entry_name(op)
            if name not in wanted:
                continue
            print(json.dumps({"begin": name}), file=file, flush=True)
            began = time.monotonic()
            found = measure(op, columns, limits)
            seconds = round(time.monotonic() - began, 2)
            record = {"entry": name, "seconds": seconds, "measured": sorted(columns), "columns": found}
            print(json.dumps(record), file=file, flush=True)


def read(results: Path) -> tuple[dict[str, dict], str | None]:
    """Entries done, and the one that was begun last without being done."""
    done, begun = {}, None
    for line in results.read_text().splitlines() if results.exists() else ():
        record = json.loads(line)
        if "begin" in record:
            begun = record["begin"]
        else:
            known = done.setdefault(record["entry"], {"entry": record["entry"], "seconds": 0, "columns": {}, "measured": []})
            known["seconds"] += record["seconds"]
            known["columns"].update(record["columns"])
            known["measured"] = sorted({*known["measured"], *record["measured"]})
            begun = None
    return done, begun


def drive(names: list[str], columns: str, results: Path, samples: int | None) -> None:
    """Workers until every entry is done."""
    while True:
        done, _ = read(results)
        wanted = set(columns.split(","))
        all_left = [n for n in names if n not in done or not wanted <= set(done[n]["measured"])]
        left = all_left[:SHARD]
        if not left:
            return
        command = [sys.executable, __file__, "--worker", "--columns", columns, "--results", str(results), "--only", *left]
        command += [] if samples is None else ["--samples", str(samples)]
        process = subprocess.Popen(command)
        _watch(process, results)
        done, begun = read(results)
        print(f"{len(names) - len(all_left) + len(left)} of {len(names)} entries", flush=True)
        if begun is not None:
            what = "took too long" if process.returncode < 0 else f"ended the process with {process.returncode}"
            failure = {"compared": 1, "refused": 0, "data": 0, "failed": 1, "examples": [what]}
            record = {
                "entry": begun,
                "seconds": LIMIT,
                "measured": sorted(wanted),
                "columns": dict.fromkeys(sorted(wanted), failure),
            }
            with results.open("a") as file:
                print(json.dumps(record), file=file)
        elif process.returncode:
            raise SystemExit(f"a worker failed with {process.returncode} outside an entry")


def _watch(process: subprocess.Popen, results: Path) -> None:
    """Wait; a worker that has written nothing for LIMIT seconds is ended."""
    started = time.time()
    while process.poll() is None:
        time.sleep(0.2)
        written = results.stat().st_mtime if results.exists() else started
        if time.time() - max(written, started) > LIMIT:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="entries, as name.variant; default all")
    parser.add_argument("--columns", default="meta,values,symbolic,errors")
    parser.add_argument("--results", type=Path, default=Path("opdb-results.jsonl"))
    parser.add_argument("--samples", type=int, help="at most so many samples of an entry and dtype, for a quick look")
    parser.add_argument("--report", action="store_true", help="only write OPDB.md from the results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if options.worker:
        work(options.only, set(options.columns.split(",")), options.results, options.samples)
        return 0
    from torch.testing._internal.common_methods_invocations import op_db

    names = [entry_name(op) for op in op_db]
    if options.only:
        names = [n for n in names if n in options.only]
    if not options.report:
        drive(names, options.columns, options.results, options.samples)
    if not options.only:
        from opdb_report import write

        limits = LIMITS if options.samples is None else {c: min(options.samples, n) for c, n in LIMITS.items()}
        most = ", ".join(f"{n} in `{c}`" for c, n in limits.items())
        note = (
            f"all dtypes that an entry lists for CPU (`symbolic`: one), of each at most so many samples, evenly spread: {most}."
        )
        write(read(options.results)[0], HERE / "OPDB.md", note)
    return 0


if __name__ == "__main__":
    sys.exit(main())
