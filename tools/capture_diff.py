"""What capture makes of a fixed set of programs, one text a program, to be compared from one state of its sources to the next.

    python tools/run_in_tree.py python tools/capture_diff.py OUT [--only PART] [--name REGEX] [--zoo] [--against FOLDER] [--counts FILE]

A text has, in the order in which they come: attempts (each start of a capture), why they stopped, graphs, and entries with their guards and
the code that replaces the frame; at its end what explain() says. Addresses are left out, counters numbered, paths relative, and of capture's
own files only the package's name is left, so that files can move. Each program runs in a process of its own, and none depends on those before
it. With --against, prints a unified diff and exits with 1 where a text differs.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import tracework_capture
from capture_programs import PARTS, Run
from capture_texts import Recorder, normalised
from tracework_capture.uncompiled import collected

SECONDS = 300
FORK = multiprocessing.get_context("fork")
COUNTED = {"graphs": r"^graph of ", "breaks": r"^break \d+: ", "attempts": r"^attempt$"}
COUNTS = """# Attempts of capture

Written by `nox -s attempts`: for all calls of a record of the zoo, as zoo.breaks makes them, the graphs that were captured, the breaks that
explain() lists, and how often a capture began: for a frame that was called, or again with what the attempt before had learnt.

| record | graphs | breaks | attempts |
|---|---|---|---|
"""


def record(run: Run, file: Path) -> None:
    """In the program's own process: runs it and writes its text."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    torch.set_num_threads(1)
    gc.disable()  # a collection takes entries out that lead to no graph: when it comes is no matter of the program
    recorder = Recorder()
    recorder.watch()
    with collected() as uncompiled:
        try:
            run(recorder.compiled)
        except Exception as error:
            recorder.lines.append(f"raised {type(error).__name__}: {error}")
    for callback in recorder.callbacks:
        breaks, skipped, recompiles = map(list, (callback.breaks, callback.skipped, callback.recompiles))
        found = tracework_capture.Explanation([], breaks, skipped, recompiles, uncompiled=uncompiled)
        recorder.lines.append(str(found))
    file.write_text(normalised("\n".join(recorder.lines) + "\n"))


def write(programs: Iterator[tuple[str, Run]], folder: Path, name: str) -> dict[str, Path]:
    """Program -> its file, in the folder, of those whose name matches."""
    files = {}
    for program, run in programs:
        if not re.search(name, program):
            continue
        file = folder / (re.sub(r"[^\w.=]+", "_", program) + ".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        child = FORK.Process(target=record, args=(run, file))
        child.start()
        child.join(SECONDS)
        child.kill()
        if not file.exists():
            file.write_text(f"no result within {SECONDS} s, or the process died\n")
        files[program] = file
    return files


def counts(file: Path) -> str:
    """The cells of a row of the table."""
    text = file.read_text()
    return " | ".join(str(len(re.findall(pattern, text, re.MULTILINE))) for pattern in COUNTED.values())


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--name", default="", help="programs whose name this regular expression matches somewhere")
    parser.add_argument("--zoo", action="store_true", help="all models of the zoo, not only quick ones")
    parser.add_argument("--against", type=Path, help="a folder that this command has written before")
    parser.add_argument("--counts", type=Path, help="a file for a table of graphs, breaks and attempts")
    given = parser.parse_args()
    files: dict[str, Path] = {}
    different = 0
    for part in [given.only] if given.only else PARTS:
        here, there = FORK.Pipe(duplex=False)  # what a part imports is not there for the next one
        worker = FORK.Process(target=lambda: there.send(write(PARTS[part](given.zoo), given.out / part, given.name)))
        worker.start()
        there.close()
        files |= here.recv()
        worker.join()
    if given.counts:
        given.counts.write_text(COUNTS + "".join(f"| {program} | {counts(file)} |\n" for program, file in files.items()))
    for file in files.values() if given.against else ():
        before = given.against / file.relative_to(given.out)
        old = before.read_text().splitlines() if before.exists() else []
        lines = list(difflib.unified_diff(old, file.read_text().splitlines(), str(before), str(file), lineterm=""))
        different += bool(lines)
        print("\n".join(lines), end="\n" * bool(lines))
    print(f"{len(files)} programs" + (f", {different} differ" if given.against else ""))
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
