"""Programs of people who use a library that calls torch.compile, by `tracework run`, untouched: results, and how many graphs they are.

python integration_tests/libraries.py [--only NAME ...] [--torchao FOLDER] [--write]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

JOBS = Path(__file__).parent / "library_jobs"
SITE = Path(__file__).parent / "library_site"
TABLE = Path(__file__).parent / "LIBRARIES.md"
TOLERANCE = 1e-4
"""Of float32, absolute and relative, after a few steps of training."""
COARSE_TOLERANCE = 2 * 2**-7
"""The same of what a program prints as "coarse": computed with values that are rounded to 8 bits, under autocast to bfloat16 or in int8.
Where the last bit of a float32 differs, they differ by a unit, 2**-7 of the largest, and eager rounds them where a fused kernel does not."""
UNCOMPILED = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}


@dataclass(frozen=True)
class Outcome:
    """One program: its library, what it does, how far its values are from eager's, which of its own checks failed, and how it ran."""

    library: str
    about: str
    error: float
    failed: tuple[str, ...]
    graphs: int
    breaks: int
    uncompiled: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.error <= 1 and not self.failed

    def row(self) -> str:
        """Of LIBRARIES.md."""
        results = (
            "eager's" if self.is_right else f"wrong ({self.error:.1e} x tolerance{''.join(f', not: {f}' for f in self.failed)})"
        )
        about = self.about.partition(": ")[2].rstrip(".")
        return (
            f"| {self.library} | {about} | {results} | {self.graphs} | {self.breaks} | {self.uncompiled} | {self.seconds:.0f} |"
        )


def names() -> list[str]:
    """Of all programs."""
    return sorted(path.stem for path in JOBS.glob("*.py"))


def run(name: str, paths: str = "") -> Outcome:
    """The program by plain Python without torch.compile, and by `tracework run`, at once. paths: what goes in front of PYTHONPATH."""
    paths = os.pathsep.join(filter(None, (paths, str(SITE), os.environ.get("PYTHONPATH"))))
    script = str(JOBS / f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        beside = {"PYTHONPATH": paths}
        ours = {**beside, "TRACEWORK_LOGS": "graph,breaks", "TRACEWORK_CACHE_DIR": folder}
        started = time.perf_counter()
        plain = _start([script], beside | UNCOMPILED)
        compiled = _start(["-m", "tracework", "run", script], ours)
        found, log = _result(name, compiled)
        seconds = time.perf_counter() - started
        expected, _ = _result(name, plain)
    about = _about(name)
    return Outcome(
        about.partition(":")[0],
        about,
        max(
            (
                *_errors(found["values"], expected["values"], TOLERANCE),
                *_errors(found.get("coarse"), expected.get("coarse"), COARSE_TOLERANCE),
            ),
            default=0.0,
        ),
        tuple(fact for fact, holds in found["facts"].items() if not holds),
        log.count("\n[tracework.products.captured] "),
        log.count("\n[tracework.capture.breaks] "),
        log.count("UncompiledWarning"),
        seconds,
    )


def _about(name: str) -> str:
    return (JOBS / f"{name}.py").read_text().partition('"""')[2].partition('"""')[0]


def _start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    given = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", **environment}
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given)


def _result(name: str, process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    out, log = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{name} ends with {process.returncode}: {log[-3000:]}")
    return json.loads(out.splitlines()[-1]), f"\n{log}"


def _errors(found: Any, expected: Any, tolerance: float) -> Iterator[float]:
    """Of each number, in units of the tolerance."""
    if isinstance(expected, (dict, list)):
        assert len(found) == len(expected), (found, expected)
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            yield from _errors(found[key], expected[key], tolerance)
    elif isinstance(expected, float):
        yield abs(found - expected) / (tolerance * (1 + abs(expected))) if found == found else float("inf")
    else:
        yield 0.0 if found == expected else float("inf")


def _program(row: str) -> str:
    """The first two cells of a row, or of what is none."""
    return "|".join(row.split("|")[:3])


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def table(rows: Mapping[str, str]) -> str:
    """The text of LIBRARIES.md: of each program its row among `rows`, by `_program`."""
    abouts = [_about(name).partition(": ") for name in names()]
    installed = {library.replace("torch_geometric", "torch-geometric") for library, _, _ in abouts}
    versions = sorted(f"{library} {_version(library)}" for library in installed)
    heading = "| library | program | results | graphs | breaks | uncompiled | seconds |\n|" + "---|" * 7
    wanted = [f"| {library} | {about.rstrip('.')} " for library, _, about in abouts]
    text = [(__doc__ or "").splitlines()[0], f"{', '.join(versions)}; torch {torch.__version__}, CPU.", heading]
    return "\n\n".join(text) + "\n" + "\n".join(rows[program] for program in wanted if program in rows) + "\n"


def main() -> int:
    """Run, report, and write the rows of what ran into the table when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=names(), choices=names())
    parser.add_argument(
        "--torchao", default="", help="a folder with the torchao for torchtune, whose last release knows no later one"
    )
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    outcomes = []
    for name in given.only:
        outcomes.append(run(name, given.torchao if name.startswith("torchtune") else ""))
        print(outcomes[-1].row(), flush=True)
    wrong = sum(not outcome.is_right for outcome in outcomes)
    if given.write:
        rows = {_program(row): row for row in TABLE.read_text().splitlines()} | {_program(o.row()): o.row() for o in outcomes}
        TABLE.write_text(table(rows))
    print(f"{wrong} of {len(outcomes)} are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
