"""Peak memory of a step on a CPU, of several compilers: `python -m benchmarks.memory` prints tracework's over eager's.

The bytes are those that the C library's allocator has given out (live_bytes.cpp, preloaded): tensors, and what libraries take for themselves
meanwhile. The resident set, which a system can be asked for, says the same only roughly: it has what was freed and not given back in it, too.
Each model is measured in a process of its own, which nobody times.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Protocol

import typer
from rich.table import Table

from benchmarks.__main__ import DIRECTIONS, RESULTS, console, run_worker, written
from benchmarks.models import build, names_of
from benchmarks.worker import DTYPES, Step, compiler

WARM_CALLS = 3
STEPS = 3
"""Of which the smallest peak counts: what other threads allocate is in it, too."""


class Steps(Protocol):
    """A training step that can let go of its gradients."""

    def __call__(self) -> object: ...

    def clear(self) -> None: ...


def peak_of(step: Steps) -> int:
    """How many bytes a step has at most, beside those that are there before: weights are not among them, gradients are.

    What is kept from earlier steps for the next is given back first, so that it counts.
    """
    return min(_growth(step) for _ in range(STEPS))


def _growth(step: Steps) -> int:
    step.clear()
    gc.collect()
    if "tracework_runtime.workspace" in sys.modules:
        sys.modules["tracework_runtime.workspace"].forget()
    counter = ctypes.CDLL(None)
    counter.live_bytes_begin.restype = counter.live_bytes_peak.restype = ctypes.c_long
    before = counter.live_bytes_begin()
    step()
    return counter.live_bytes_peak() - before


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Peak bytes of each of a job's ways, as benchmarks.compare has them, and of eager, in a process with the counter."""
    reference, inputs = build(job["model"], job["scale"], "cpu", DTYPES[job["dtype"]], job["training"], job["batch"])
    found = {}
    for way in ("eager", *job["ways"]):
        system, _, mode = way.partition(":")
        step = Step(compiler(system, mode or None)(copy.deepcopy(reference)), inputs, job["training"])
        for _ in range(WARM_CALLS):
            step()
        found[way] = peak_of(step)
        step.clear()
    return {**job, "peak_bytes": found}


@contextmanager
def counter() -> Iterator[dict[str, str]]:
    """The environment of a process that has the counter."""
    with TemporaryDirectory() as folder:
        library = Path(folder) / "live_bytes.so"
        source = Path(__file__).with_name("live_bytes.cpp")
        subprocess.run(["g++", "-O2", "-fPIC", "-shared", "-o", str(library), str(source)], check=True)
        yield {"LD_PRELOAD": str(library)}


def measured_apart(job: dict[str, Any], caches: Path) -> dict[str, Any]:
    """measure() in a process of its own."""
    with counter() as settings:
        return run_worker(job, caches, "benchmarks.memory", settings)


def table_of(rows: Sequence[dict[str, Any]], ways: Sequence[str]) -> Table:
    """Megabytes of eager, and what each way has of that."""
    table = Table("model", "step", "batch", "eager MB", *ways, title="peak memory of a step over eager's")
    for row in rows:
        found = row.get("peak_bytes", {})
        cells = [f"{found[way] / found['eager']:.3f}" if way in found else row.get("failed", "-")[:60] for way in ways]
        megabytes = f"{found['eager'] / 1e6:.1f}" if found else "-"
        table.add_row(row["model"], "train" if row["training"] else "infer", str(row["batch"] or "own"), megabytes, *cells)
    return table


def main(
    models: Annotated[str, typer.Option(help="comma-separated names, all, or more: ten that nobody tuned for")] = "all",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16")] = "fp32",
    scale: Annotated[str, typer.Option(help="small, full or single")] = "small",
    batches: Annotated[str, typer.Option(help="comma-separated, 0 for each model's own")] = "0,8",
    steps: Annotated[str, typer.Option(help="infer, train or both")] = "train",
    ways: Annotated[str, typer.Option(help="comma-separated systems, each with :mode or without")] = "tracework",
    folder: Annotated[Path | None, typer.Option(help="of the caches; default: one that is deleted at the end")] = None,
    output: Annotated[Path | None, typer.Option(help="JSON lines file; default under benchmarks/results")] = None,
) -> None:
    """Prints a table and writes JSON lines."""
    chosen = ways.split(",")
    jobs = [
        dict(model=model, dtype=dtype, scale=scale, batch=int(batch) or None, training=training, ways=chosen)
        for training in DIRECTIONS[steps]
        for batch in batches.split(",")
        for model in names_of(models)
    ]
    rows = []
    path = output or RESULTS / f"cpu-{dtype}-{scale}-peaks.jsonl"
    with TemporaryDirectory() as temporary:
        for row in written((measured_apart(job, folder or Path(temporary)) for job in jobs), path):
            rows.append(row)
            console.print(table_of([row], chosen))
    console.print(table_of(rows, chosen))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
    else:
        typer.run(main)
