"""The command: every system on every model in one run, each in a fresh process, with empty caches and again with full ones."""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import decode as decoding
from benchmarks import generate as generation
from benchmarks.models import MODELS

SYSTEMS = ("torch.compile", "tracework")
RESULTS = Path(__file__).parent / "results"
console = Console(width=180)
DIRECTIONS = {"infer": (False,), "train": (True,), "both": (False, True)}
"""What is asked for -> whether it is training."""


def written(rows: Iterable[dict[str, Any]], path: Path, *head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each row as soon as it is a line of the file, which begins with others."""
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in head)
        for row in rows:
            file.write(json.dumps(row) + "\n")
            file.flush()
            yield row


def settings_of(caches: Path) -> dict[str, str]:
    """Where each compiler keeps its cache."""
    names = {"TORCHINDUCTOR_CACHE_DIR": "torch", "TRACEWORK_CACHE_DIR": "tracework", "TRITON_CACHE_DIR": "triton"}
    return {variable: str(caches / name) for variable, name in names.items()}


def run_worker(
    job: dict[str, Any], caches: Path, module: str = "benchmarks.worker", settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One worker process, with these environment variables; a failure becomes a row with its last line."""
    environment = {**os.environ, **(settings or {}), **settings_of(caches)}
    command = [sys.executable, "-m", module, json.dumps(job)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        return {**job, "ways": {}, "failed": lines[-1] if lines else f"exit {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def cold_and_warm(job: dict[str, Any]) -> dict[str, Any]:
    """The figures of a run with empty caches, and the first call of a second run with what the first left."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_worker(job, Path(folder))
        if "failed" not in result:
            warm = run_worker({**job, "seconds": 0}, Path(folder))
            result["warm_first_call_s"] = warm.get("first_call_s", math.nan)
    return result


def _cell(row: dict[str, Any], key: str, form: str) -> str:
    return form.format(row[key]) if key in row else "-"


def table_of(rows: list[dict[str, Any]]) -> Table:
    """All rows, one line for each model, direction and system."""
    columns = (
        "model",
        "step",
        "system",
        "speed-up",
        "cold s",
        "warm s",
        "peak / eager",
        "error",
        "grad error",
        "from float64",
        "grad",
    )
    table = Table(*columns, title="against eager, median of interleaved runs; distances from float64, eager's in brackets")
    for row in rows:
        name = [row["model"], "train" if row["training"] else "infer", row["system"]]
        if "failed" in row:
            table.add_row(*name, "failed: " + row["failed"][:60])
            continue
        peak = f"{row['peak_bytes'] / row['eager_peak_bytes']:.2f}" if row.get("eager_peak_bytes") else "-"
        cells = [
            _cell(row, "speedup", "{:.2f}"),
            _cell(row, "first_call_s", "{:.2f}"),
            _cell(row, "warm_first_call_s", "{:.2f}"),
            peak,
            _cell(row, "error", "{:.1e}"),
            _cell(row, "gradient_error", "{:.1e}"),
            f"{_cell(row, 'float64_error', '{:.2e}')} ({_cell(row, 'eager_float64_error', '{:.2e}')})",
            f"{_cell(row, 'float64_gradient_error', '{:.2e}')} ({_cell(row, 'eager_float64_gradient_error', '{:.2e}')})",
        ]
        table.add_row(*name, *cells)
    return table


def geomeans(rows: list[dict[str, Any]]) -> list[str]:
    """Geometric mean speed-up for each system and direction."""
    lines = []
    for system in SYSTEMS:
        for training in (False, True):
            found = [r["speedup"] for r in rows if r["system"] == system and r["training"] == training and "speedup" in r]
            if found:
                mean = math.exp(sum(map(math.log, found)) / len(found))
                lines.append(f"{system} {'training' if training else 'inference'}: geomean {mean:.2f}, worst {min(found):.2f}")
    return lines


def main(
    models: Annotated[str, typer.Option(help="comma-separated names, or all")] = "all",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16")] = "fp32",
    scale: Annotated[str, typer.Option(help="small, full (meant for a GPU) or single (full with a batch of one)")] = "small",
    steps: Annotated[str, typer.Option(help="infer, train or both")] = "both",
    systems: Annotated[str, typer.Option(help="which of torch.compile,tracework")] = ",".join(SYSTEMS),
    mode: Annotated[str | None, typer.Option(help="compile mode")] = None,
    seconds: Annotated[float, typer.Option(help="time for the steady state of each row")] = 5.0,
    output: Annotated[Path | None, typer.Option(help="JSON lines file; default under benchmarks/results")] = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="milliseconds a token of decoders with a static cache instead")
    ] = False,
    generate: Annotated[
        bool, typer.Option("--generate", help="milliseconds a token of generate() of transformers with a static cache instead")
    ] = False,
    gpus: Annotated[int, typer.Option(help="for --decode and --generate: how many take turns")] = 1,
    caches: Annotated[str, typer.Option(help="tokens that the caches of --decode hold")] = "512,4096",
) -> None:
    """Prints a table and writes JSON lines; every figure of a row comes from one process, eager measured in it in turns."""
    if decode:
        path = output or RESULTS / f"{device}-{dtype}-{scale}-decode.jsonl"
        names = list(decoding.MODELS) if models == "all" else models.split(",")
        pairs = [p for p in decoding.SYSTEMS if p[0] in systems.split(",") and mode in (None, p[1])]
        common = dict(device=device, dtype=dtype, scale=scale, seconds=seconds)
        jobs = [
            dict(model=model, cache=int(cache), system=system, mode=mode, **common)
            for model in names
            for cache in caches.split(",")
            for system, mode in pairs
        ]
        write_all(jobs, "benchmarks.decode", decoding.table_of, path, gpus)
        return
    if generate:
        path = output or RESULTS / f"{device}-{dtype}-{scale}-generate.jsonl"
        names = list(generation.MODELS) if models == "all" else models.split(",")
        common = dict(device=device, dtype=dtype, scale=scale, seconds=seconds)
        ways = [w for w in generation.SYSTEMS if w[0] in systems.split(",") and mode in (None, w[2])]
        jobs = [dict(model=model, system=s, way=w, mode=m, **common) for model in names for s, w, m in ways]
        write_all(jobs, "benchmarks.generate", generation.table_of, path, gpus)
        return
    names = list(MODELS) if models == "all" else models.split(",")
    unknown = [n for n in names if n not in MODELS]
    if unknown:
        raise typer.BadParameter(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
    path = output or RESULTS / f"{device}-{dtype}-{scale}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    common = dict(device=device, dtype=dtype, scale=scale, mode=mode, seconds=seconds)
    jobs = [
        dict(model=name, system=system, training=training, **common)
        for name in names
        for training in DIRECTIONS[steps]
        for system in systems.split(",")
    ]
    rows = []
    for row in written(map(cold_and_warm, jobs), path):
        rows.append(row)
        console.print(_line(row))
    console.print(table_of(rows))
    for line in geomeans(rows):
        console.print(line)
    console.print(f"wrote {path}")


def write_all(
    jobs: list[dict[str, Any]], module: str, table: Callable[[list[dict[str, Any]]], Table], path: Path, gpus: int
) -> None:
    """A table of measurements, one at a time on each of so many GPUs; each one writes its line of JSON as it ends."""
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for gpu in range(gpus):
        free.put(gpu)

    def run(job: dict[str, Any], folder: Path) -> dict[str, Any]:
        gpu = free.get()
        try:
            return run_worker(job, folder, module, {"CUDA_VISIBLE_DEVICES": str(gpu)} if gpus > 1 else None)
        finally:
            free.put(gpu)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(gpus) as pool:
        running = [pool.submit(run, job, Path(folder)) for job in jobs]
        rows = [*written((done.result() for done in as_completed(running)), path)]
    console.print(table(rows))
    console.print(f"wrote {path}")


def _line(row: dict[str, Any]) -> str:
    step = "train" if row["training"] else "infer"
    figures = row.get("failed") or f"{_cell(row, 'speedup', '{:.2f}')}x, cold {_cell(row, 'first_call_s', '{:.1f}')} s"
    return f"{row['model']} {step} {row['system']}: {figures}"


if __name__ == "__main__":
    typer.run(main)
