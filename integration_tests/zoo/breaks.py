"""Counts graphs and breaks of every architecture here and under torch._dynamo: `python -m zoo.breaks`; writes BREAKS.md.

The backend gives each graph back as it is, so what is measured is capture alone. Every record runs in a process of its own,
forked from one that has imported the libraries. BREAKS.jsonl keeps the rows of both sides: `--side ours` renews ours only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECONDS = 150
TRAINED = ("DebertaForMaskedLM", "GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration", "ViTForImageClassification")
"""Records that are counted in training mode, too: capture differs by dropout and gradients only, and the rest would double the time."""
LIBRARIES = {
    "ours": ("zoo.build", "zoo.awkward", "transformers.modeling_utils", "timm", "tracework_capture"),
    "torch": ("zoo.build", "zoo.awkward", "transformers.modeling_utils", "timm", "torch._dynamo"),
}
"""What is imported before the processes fork; zoo.build makes torchvision importable, so it comes first."""
SIDES = ("ours", "torch")
CHUNK = 40


def jobs(only: str) -> list[str]:
    """name=mode of everything that is counted."""
    from .awkward import PROGRAMS
    from .records import RECORDS

    names = [f"{name}={record.modes[0]}" for name, record in RECORDS.items()]
    names += [f"{name}=training" for name in TRAINED]
    names += [f"awkward/{name}=inference" for name in PROGRAMS]
    return [name for name in names if re.search(only, name)]


# --- one record -------------------------------------------------------------------------------------------------------


Wrap = Callable[[Any], Any]
Run = Callable[[Wrap], Iterator[Any]]


def calls_of(name: str, mode: str) -> Run:
    """A generator that calls the record once, then with other sizes where it takes them; it is given what wraps the captured callable."""
    import torch

    if name.startswith("awkward/"):
        from .awkward import PROGRAMS

        torch.manual_seed(0)
        function, args = PROGRAMS[name.removeprefix("awkward/")]()
        return lambda wrap: iter([wrap(function)(*args)])
    from .build import build
    from .inputs import INPUTS, other_sizes
    from .records import RECORDS

    record = RECORDS[name]
    model, inputs = build(record), INPUTS[record.inputs](record)
    model.train(mode == "training")

    def run(wrap: Wrap) -> Iterator[Any]:
        torch.manual_seed(1)
        if mode == "generate":
            model.forward = wrap(model.forward)
            yield model.generate(**inputs, max_new_tokens=4, do_sample=False, cache_implementation="static", disable_compile=True)
            return
        wrapped = wrap(model)
        for call in (inputs, *other_sizes(record, inputs)):
            with torch.set_grad_enabled(mode == "training"):
                yield wrapped(**call)

    return run


def graphs_of(calls: Iterator[Any], graphs: list[int], stops: Callable[[], list[str]]) -> dict[str, Any]:
    """Graphs and stops of the first call; and what each call of another size brought, in a row."""
    next(calls)
    row = {"graphs": graphs[0], "stops": stops(), "other sizes": []}
    before = graphs[0]
    for _ in calls:
        row["other sizes"].append(graphs[0] - before)
        before = graphs[0]
    return row


class Lines(logging.Handler):
    """Graphs, breaks and plainly run frames, from capture's log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.breaks: list[str] = []
        self.plain: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Sorts one line."""
        text = record.getMessage()
        if "graph break in" in text:
            self.breaks.append(text.partition("graph break in ")[2])
        elif "runs as plain Python" in text and "tensor operation" not in text:
            self.plain.append(text)


def ours(run: Run) -> dict[str, Any]:
    """Counts under tracework."""
    import tracework_capture

    lines, graphs = Lines(), [0]
    logger = logging.getLogger("tracework.capture")
    before = logger.level, logger.propagate

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs[0] += 1
        return gm.forward

    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(lines)

    def stops() -> list[str]:
        return lines.breaks + [text for text in lines.plain if not _follows_a_break(text, lines.breaks)]

    try:
        row = graphs_of(run(tracework_capture.optimize(backend, unbacked=None)), graphs, stops)  # as tracework.compile does
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before[0])
        logger.propagate = before[1]
    return {**row, "plain": lines.plain}


def _follows_a_break(plain: str, breaks: list[str]) -> bool:
    """Whether the frame that runs plainly was counted as a break already."""
    name = plain.partition(" runs as plain Python")[0]
    return any(line.startswith(name + ":") for line in breaks)


def torchs(run: Run) -> dict[str, Any]:
    """Counts under torch._dynamo."""
    import torch._dynamo

    graphs = [0]

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs[0] += 1
        return gm.forward

    def stops() -> list[str]:
        counted = torch._dynamo.utils.counters["graph_break"]
        return [f"{' '.join(reason.split())[:200]}" for reason, n in counted.items() for _ in range(n)]

    return graphs_of(run(torch._dynamo.optimize(backend)), graphs, stops)


MEASURES: Mapping[str, Callable[..., dict[str, Any]]] = {"ours": ours, "torch": torchs}


def measure(side: str, job: str, pipe: Any) -> None:
    """In the record's own process."""
    import torch

    torch.set_num_threads(1)
    name, _, mode = job.rpartition("=")
    started = time.perf_counter()
    try:
        row = MEASURES[side](calls_of(name, mode))
    except Exception as error:
        row = {"graphs": 0, "stops": [], "raised": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    row["seconds"] = round(time.perf_counter() - started, 1)
    pipe.send(row)
    pipe.close()


def work(side: str, names: list[str]) -> None:
    """The process that forks: imports first, then one child a record; a JSON line for each."""
    for library in LIBRARIES[side]:
        importlib.import_module(library)
    fork = multiprocessing.get_context("fork")
    for job in names:
        here, there = fork.Pipe(duplex=False)
        child = fork.Process(target=measure, args=(side, job, there))
        child.start()
        there.close()
        row: dict[str, Any] = {"graphs": 0, "stops": [], "raised": "no result"}
        try:
            row = here.recv() if here.poll(SECONDS) else {**row, "raised": f"no result after {SECONDS} s"}
        except EOFError:
            pass
        if child.is_alive():
            child.join(2)
            child.kill()
        child.join()
        print(json.dumps({"job": job, "side": side, **row}), flush=True)


# --- all of them ------------------------------------------------------------------------------------------------------


def rows_of(side: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a side, as they come."""
    for start in range(0, len(names), CHUNK):
        command = [sys.executable, "-m", "zoo.breaks", "--work", side, *names[start : start + CHUNK]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield from (json.loads(line) for line in process.stdout if line.startswith('{"job"'))
        if process.returncode:
            raise SystemExit(f"the process that forks ended with {process.returncode}")


def without_folders(text: str) -> str:
    """Files by their paths in what they belong to, on every machine the same."""
    return re.sub(r"/[^\s\"]*/(site-packages|integration_tests|lib/python[\d.]+)/", "", text)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m zoo.breaks", description=__doc__)
    parser.add_argument("--only", default="", help="jobs (name=mode) that match this regular expression somewhere")
    parser.add_argument("--side", choices=SIDES, help="both when left out")
    parser.add_argument("--out", type=Path, default=HERE / "BREAKS.md")
    parser.add_argument("--work", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work[0], given.work[1:])
        return 0
    names, kept = jobs(given.only), given.out.with_suffix(".jsonl")
    rows = {(r["job"], r["side"]): r for r in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}
    for side in [given.side] if given.side else SIDES:
        for row in rows_of(side, names):
            rows[row["job"], side] = row
            print(side, row["job"], row["graphs"], len(row["stops"]), row.get("raised", ""), *row["stops"][:3], flush=True)
    order = {job: number for number, job in enumerate(jobs(""))}
    ordered = sorted((r for r in rows.values() if r["job"] in order), key=lambda r: (order[r["job"]], r["side"]))
    kept.write_text("".join(without_folders(json.dumps(r)) + "\n" for r in ordered))
    from .breaks_report import text

    given.out.write_text(text(ordered))
    return 0


if __name__ == "__main__":
    sys.exit(main())
