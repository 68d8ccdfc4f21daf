"""What capture makes of a fixed set of programs, one text a program, to be compared from one state of its sources to the next.

    python tools/run_in_tree.py python tools/capture_diff.py OUT [--only language|breaks|zoo] [--name TEXT] [--zoo] [--against FOLDER]

A text has, in the order in which they come: attempts (each start of a capture), why they stopped, graphs, and entries with their guards and the
code that replaces the frame; at its end what explain() says. Addresses are left out, counters numbered, paths relative, and of
capture's own files only the package's name is left, so that files can move. Each program runs in a process of its own, and none depends on
those before it. With --against, prints a unified diff and exits with 1 where a text differs.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import tracework_capture
from capture_texts import Recorder, normalised
from tracework_capture.uncompiled import collected

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "packages" / "capture" / "tests" / "unit"
SECONDS = 300
Run = Callable[[Callable[..., Any]], None]
"""A program: it is given what compiles a function, with optimize()'s options, and makes its calls."""
QUICK = (
    *(
        f"awkward/{name}=inference"
        for name in ("until_converged", "filtered_boxes", "lbfgs_step", "rollout", "gan_step", "detector")
    ),
    *(
        "timm/resnet18=inference",
        "timm/swin_tiny_patch4_window7_224=inference",
        "GPT2LMHeadModel=training",
        "BertForMaskedLM=inference",
    ),
    *("T5ForConditionalGeneration/generate=generate", "Phi3ForCausalLM/generate=generate", "Gemma3ForCausalLM=inference"),
    *("DINOv3ViTModel=inference", "DebertaForMaskedLM=inference", "RwkvForCausalLM=inference", "Wav2Vec2ForCTC=inference"),
)
"""Jobs of the zoo that are taken without --zoo: each kind of call, and of a break, a loop, a retry, a size that changes."""


def language() -> Iterator[tuple[str, Run]]:
    """The cases of unit/language."""
    sys.path[:0] = [str(TESTS / "language"), str(TESTS / "interp")]
    for file in sorted((TESTS / "language").glob("*_cases.py")):
        importlib.import_module(file.stem)
    for name, (function, _) in sys.modules["cases"].CASES.items():
        yield name, lambda compiled, function=function: repeat(compiled(function))
    for name, case in sys.modules["one_graph_cases"].CASES.items():
        yield f"one_graph: {name}", lambda compiled, case=case: call_case(compiled, case)


def repeat(compiled: Callable[..., Any]) -> None:
    """As the tests of the cases do; then with another size."""
    for rows in (2, 2, 4):
        torch.manual_seed(0)
        compiled(torch.randn(rows, 3))


def call_case(compiled: Callable[..., Any], case: Any) -> None:
    """The calls of a row of one_graph_cases."""
    program = compiled(case.program, unbacked=True if case.fullgraph else None, fullgraph=case.fullgraph)
    for args in case.calls:
        program(*args)


def breaks() -> Iterator[tuple[str, Run]]:
    """A program for each reason of a break, which breaks, and is refused."""
    sys.path.insert(0, str(TESTS / "controls"))
    table = importlib.import_module("break_programs")
    for name, function in table.PROGRAMS.items():
        yield name, lambda compiled, function=function: compiled(function)(table.X)
        yield f"{name} refused", lambda compiled, function=function: compiled(function, fullgraph=True)(table.X)


def zoo(all_of_it: bool) -> Iterator[tuple[str, Run]]:
    """The models of integration_tests/zoo, called as zoo.breaks calls them."""
    sys.path[:0] = [str(ROOT), str(ROOT / "integration_tests")]
    counted = importlib.import_module("zoo.breaks")
    for library in counted.LIBRARIES["ours"]:
        importlib.import_module(library)
    for job in counted.jobs("") if all_of_it else QUICK:
        yield job, lambda compiled, job=job: run_job(compiled, counted.calls_of(*job.rpartition("=")[::2]))


def run_job(compiled: Callable[..., Any], calls: Callable[..., Iterator[Any]]) -> None:
    """All calls of a record of the zoo."""
    for _ in calls(lambda model: compiled(model, unbacked=None)):
        pass


def record(run: Run, file: Path) -> None:
    """In the program's own process: runs it and writes its text."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    torch.set_num_threads(1)
    recorder = Recorder()
    recorder.watch()
    with collected() as uncompiled:
        try:
            run(recorder.compiled)
        except Exception as error:
            recorder.lines.append(f"raised {type(error).__name__}: {error}")
    for callback in recorder.callbacks:
        found = tracework_capture.Explanation(
            [], *map(list, (callback.breaks, callback.skipped, callback.recompiles)), uncompiled
        )
        recorder.lines.append(str(found))
    file.write_text(normalised("\n".join(recorder.lines) + "\n"))


def write(part: str, programs: Iterator[tuple[str, Run]], out: Path, name: str) -> list[Path]:
    """The files of a part, below out."""
    files = []
    fork = multiprocessing.get_context("fork")
    for program, run in programs:
        if name not in program:
            continue
        file = out / part / (re.sub(r"[^\w.=]+", "_", program) + ".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        child = fork.Process(target=record, args=(run, file))
        child.start()
        child.join(SECONDS)
        child.kill()
        if not file.exists():
            file.write_text(f"no result within {SECONDS} s, or the process died\n")
        files.append(file)
    return files


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=("language", "breaks", "zoo"))
    parser.add_argument("--name", default="", help="programs whose name contains this")
    parser.add_argument("--zoo", action="store_true", help="all models of the zoo, not only quick ones")
    parser.add_argument("--against", type=Path, help="a folder that this command has written before")
    given = parser.parse_args()
    parts = {"language": language(), "breaks": breaks(), "zoo": zoo(given.zoo)}
    files, different = [], 0
    for part in [given.only] if given.only else parts:
        files += write(part, parts[part], given.out, given.name)
    for file in files if given.against else ():
        before = given.against / file.relative_to(given.out)
        old = before.read_text().splitlines() if before.exists() else []
        lines = list(difflib.unified_diff(old, file.read_text().splitlines(), str(before), str(file), lineterm=""))
        different += bool(lines)
        print("\n".join(lines), end="\n" * bool(lines))
    print(f"{len(files)} programs" + (f", {different} differ" if given.against else ""))
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
