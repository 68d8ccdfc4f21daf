"""Several compilers and modes on each model in one process, in turns: `python -m benchmarks.compare --device cuda --dtype bf16 --scale full`.

Caches are filled first, several models at once ("cold_s" are the first calls there), then models are timed one after the other; "first_call_s"
are first calls with full caches. `python -m benchmarks.tables` makes tables and charts of what lies under benchmarks/results.
A way is a system and a mode: "tracework", "torch.compile:max-autotune", or "torch.compile:freezing", which takes weights for constants.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from benchmarks.__main__ import DIRECTIONS, RESULTS, console, run_worker, settings_of, written
from benchmarks.limit import limit_of
from benchmarks.models import build, names_of
from benchmarks.profile import top_kernels
from benchmarks.worker import DTYPES, Step, compiler, gradient_error, in_turns, peak_of, relative_error, replayed_bytes

WAYS = ("tracework", "tracework:max-autotune", "torch.compile", "torch.compile:max-autotune")
WARM_CALLS = 10
"""After which nobody measures or records any more."""
KERNELS = 12
"""Rows of the profile of each way."""


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One model by all ways: job has model, device, dtype, scale, batch, training, ways, seconds, profile.

    "limit_s" is what the step's products take alone (benchmarks/limit.py). "peak_bytes" counts what recordings hold beside tensors, as
    far as a way's own recordings added to it.
    """
    device, training = job["device"], job["training"]
    reference, inputs = build(job["model"], job["scale"], device, DTYPES[job["dtype"]], training, job["batch"])
    steps = {"eager": Step(reference, inputs, training)}
    expected = steps["eager"]().clone()
    result: dict[str, Any] = {**job, "ways": {}}
    for way in job["ways"]:
        system, _, mode = way.partition(":")
        model = copy.deepcopy(reference)
        row: dict[str, Any] = {}
        result["ways"][way] = row
        held = replayed_bytes(device)
        started = time.perf_counter()
        try:
            step = Step(compiler(system, mode or None)(model), inputs, training)
            got = step().clone()
            row["first_call_s"] = time.perf_counter() - started
            row["error"] = relative_error(got, expected)
            if training:
                row["gradient_error"] = gradient_error(model, reference)
            for _ in range(WARM_CALLS):
                step()
        except Exception as failed:
            row["failed"] = f"{type(failed).__name__}: {str(failed).strip().splitlines()[0][:200] if str(failed).strip() else ''}"
            continue
        steps[way] = step
        row["held_bytes"] = replayed_bytes(device) - held
    if not job["seconds"]:
        return result
    result["limit_s"] = limit_of(steps["eager"], device)
    for way, step in steps.items():
        row = result["ways"].setdefault(way, {})
        row["peak_bytes"] = peak_of(step, device) + row.pop("held_bytes", 0)
    times = in_turns(steps, device, job["seconds"])
    for way, found in times.items():
        row = result["ways"][way]
        row["step_s"] = statistics.median(found)
        row["speedup"] = statistics.median(e / t for e, t in zip(times["eager"], found, strict=True))
        if job["profile"]:
            row["kernels"] = top_kernels(steps[way], device, KERNELS)
    return result


def alone(job: dict[str, Any]) -> dict[str, Any]:
    """A model in this process, of which no compiler keeps anything."""
    import tracework

    try:
        return measure(job)
    except Exception as failed:
        return {**job, "ways": {}, "failed": f"{type(failed).__name__}: {failed}"}
    finally:
        tracework.reset()
        torch.compiler.reset()
        gc.collect()
        if job["device"] == "cuda":
            torch.cuda.empty_cache()


def description(device: str) -> dict[str, Any]:
    """Where and of what the figures of a run are: the first line of its file."""
    import triton

    processor = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), "").partition(
        ": "
    )[2]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True
    ).stdout.strip()
    return {
        "machine": torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} cores of {processor}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "commit": commit or None,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": re.sub(r" ?--(output|folder)[ =]\S+", "", " ".join(sys.argv[1:])),
    }


def table_of(rows: Sequence[dict[str, Any]], ways: Sequence[str]) -> Table:
    """Milliseconds of eager, and of each way the speed-up, the first call with full caches, the error and the peak of memory."""
    table = Table("model", "step", "eager ms", *ways, title="speed-up over eager (first call s, error, peak memory over eager's)")
    for row in rows:
        cells, eager = [], row.get("ways", {}).get("eager", {})
        for way in ways:
            found = row.get("ways", {}).get(way, {})
            if "speedup" in found:
                peak = found["peak_bytes"] / max(1, eager["peak_bytes"])
                cells.append(f"{found['speedup']:.2f} ({found['first_call_s']:.1f}, {found['error']:.0e}, {peak:.2f})")
            else:
                cells.append(found.get("failed", row.get("failed", "-"))[:40])
        table.add_row(row["model"], "train" if row["training"] else "infer", f"{eager.get('step_s', math.nan) * 1e3:.2f}", *cells)
    return table


def ratios(rows: Sequence[dict[str, Any]], ways: Sequence[str]) -> list[str]:
    """Geometric means and the worst of every way over eager and of the first system's ways over the others."""
    lines = []
    for training in (False, True):
        of = [r["ways"] for r in rows if r["training"] == training and "ways" in r]
        for way in ways:
            for other in ("eager", *(w for w in ways if w.split(":")[0] != ways[0].split(":")[0] and w != way)):
                if other != "eager" and way.split(":")[0] != ways[0].split(":")[0]:
                    continue
                both = [r[other]["step_s"] / r[way]["step_s"] for r in of if all("step_s" in r.get(w, {}) for w in (way, other))]
                if both:
                    mean = math.exp(statistics.fmean(map(math.log, both)))
                    step = "training" if training else "inference"
                    lines.append(f"{step}: {way} over {other}: {mean:.3f} (worst {min(both):.2f}, {len(both)} models)")
    return lines


def main(
    models: Annotated[str, typer.Option(help="comma-separated names, all, or more: ten that nobody tuned for")] = "all",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16")] = "fp32",
    scale: Annotated[str, typer.Option(help="small, full or single")] = "small",
    batch: Annotated[int | None, typer.Option(help="in the place of each model's own")] = None,
    steps: Annotated[str, typer.Option(help="infer, train or both")] = "both",
    ways: Annotated[str, typer.Option(help="comma-separated systems, each with :mode or without")] = ",".join(WAYS),
    seconds: Annotated[float, typer.Option(help="time for the steady state of a model; 0 fills caches only")] = 5.0,
    fill: Annotated[int, typer.Option(help="models at once while caches are filled; 0 leaves them as they are")] = 4,
    folder: Annotated[Path | None, typer.Option(help="of the caches; default: one that is deleted at the end")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="the costliest kernels of each way, in the output file")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON lines file; default under benchmarks/results")] = None,
) -> None:
    """Prints a table and writes JSON lines."""
    names = names_of(models)
    chosen = ways.split(",")
    common = dict(device=device, dtype=dtype, scale=scale, batch=batch, ways=chosen, profile=profile)
    jobs = [dict(model=name, training=training, **common) for training in DIRECTIONS[steps] for name in names]
    filled: dict[tuple[str, bool], dict[str, Any]] = {}
    path = output or RESULTS / f"{device}-{dtype}-{scale}-compare.jsonl"
    with TemporaryDirectory() as temporary:
        caches = folder or Path(temporary)
        if fill:
            with ThreadPoolExecutor(fill) as pool:
                for row in pool.map(lambda job: run_worker({**job, "seconds": 0}, caches, "benchmarks.compare"), jobs):
                    filled[row["model"], row["training"]] = row.get("ways", {})
                    found = {w: r.get("failed") or f"{r['first_call_s']:.1f} s" for w, r in row.get("ways", {}).items()}
                    console.print(row["model"], "train" if row["training"] else "infer", row.get("failed", ""), found)
        os.environ.update(settings_of(caches))
        rows = []

        def measured(job: dict[str, Any]) -> dict[str, Any]:
            found = alone({**job, "seconds": seconds})
            for way, row in filled.get((job["model"], job["training"]), {}).items():
                if "first_call_s" in row:
                    found.get("ways", {}).setdefault(way, {})["cold_s"] = row["first_call_s"]
            return found

        for row in written(map(measured, jobs if seconds else ()), path, description(device)):
            rows.append(row)
            console.print(table_of([row], chosen))
    console.print(table_of(rows, chosen))
    for line in ratios(rows, chosen):
        console.print(line)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print("\n" + json.dumps(measure(json.loads(sys.argv[1]))))
    else:
        typer.run(main)
