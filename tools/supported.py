"""SUPPORTED.md and the README's table: on which torch, CPython and triton the tests were run, and how that ended.

python tools/supported.py REPORT...            # says what pytest's JUnit reports of runs in this environment have; 1 where a test failed
python tools/supported.py REPORT... --write    # makes that a row of both
python tools/supported.py                      # the README's table from SUPPORTED.md
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ROOT / "SUPPORTED.md"
README = ROOT / "README.md"
HEAD = """# Supported

What `nox -s matrix -- --write` found: the packages' tests and a sample of the integration tests (CORE in noxfile.py), on Linux x86-64
without a GPU, from wheels that are built once for each CPython and serve every torch. Triton kernels are compiled for a GPU and run by
triton's interpreter.

"""
COLUMNS = ("torch", "CPython", "triton", "passed", "failed", "skipped")
BEGIN, END = "<!-- tools/supported.py writes what follows from SUPPORTED.md -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """One environment, and how many of its tests passed, failed (errors included) and were skipped."""

    torch: str
    cpython: str
    triton: str
    passed: int
    failed: int
    skipped: int


def numbers(version: str) -> list[int]:
    """2.14.1+cpu -> [2, 14, 1]."""
    return [int(part) for part in version.partition("+")[0].split(".")]


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(cells)} |\n" for cells in (header, *rows)]
    return "".join((lines[0], "|", "---|" * len(header), "\n", *lines[1:]))


def read() -> list[Row]:
    """The rows of SUPPORTED.md."""
    text = SUPPORTED.read_text() if SUPPORTED.exists() else ""
    cells = [re.split(r"\s*\|\s*", line.strip("| \n")) for line in text.splitlines() if re.match(r"\| \d", line)]
    return [Row(torch, cpython, triton, int(p), int(f), int(s)) for torch, cpython, triton, p, f, s in cells]


def write(rows: list[Row]) -> None:
    """SUPPORTED.md of these rows, and the README's table."""
    lines = [(r.torch, r.cpython, r.triton, str(r.passed), str(r.failed), str(r.skipped)) for r in rows]
    SUPPORTED.write_text(HEAD + table(COLUMNS, lines))
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(before + BEGIN + readme_table(rows) + END + rest.partition(END)[2])


def readme_table(rows: list[Row]) -> str:
    """What stands between the README's markers."""
    return (
        "\n\n" + table(("torch", "CPython", "triton", "tests"), [(r.torch, r.cpython, r.triton, outcome(r)) for r in rows]) + "\n"
    )


def outcome(row: Row) -> str:
    """How a run ended, in words."""
    return f"{row.passed:,} pass" + (f", {row.failed:,} fail" if row.failed else "")


def row_of_this_environment(reports: list[str]) -> Row:
    """The row of runs of pytest in this environment, from their JUnit reports."""
    suites = [suite for report in reports for suite in ElementTree.parse(report).getroot().iter("testsuite")]
    counts = [[int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")] for suite in suites]
    tests, failures, errors, skipped = map(sum, zip(*counts, strict=True))
    failed = failures + errors
    torch, triton = (metadata.version(name).partition("+")[0] for name in ("torch", "triton"))
    return Row(torch, f"{sys.version_info.major}.{sys.version_info.minor}", triton, tests - failed - skipped, failed, skipped)


def main(arguments: list[str]) -> int:
    rows = {(r.torch, r.cpython): r for r in read()}
    reports = [a for a in arguments if a != "--write"]
    row = row_of_this_environment(reports) if reports else None
    if row is not None:
        rows[row.torch, row.cpython] = row
        print(f"torch {row.torch}, CPython {row.cpython}, triton {row.triton}: {outcome(row)}, {row.skipped} are skipped")
    if row is None or "--write" in arguments:
        write(sorted(rows.values(), key=lambda r: (numbers(r.torch), numbers(r.cpython))))
    return int(row is not None and row.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
