"""The tuning database: which candidate a problem takes, as lines of JSON.

Books ship with the package (books/*.jsonl), and what this machine has measured lies in the cache folder, a sealed entry a problem. A row
counts for the Triton that made it: another one makes other kernels.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.resources
import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tracework_runtime.cache.store import Entries, Store

from .record import Candidate, Problem, as_text, fingerprint

__all__ = ["Book", "BookWarning", "Row", "kept", "merged", "rows_of_lines", "shipped"]

log = logging.getLogger("tracework.inductor.autotune")
FORMAT = 1
KIND = "choice"
"""Of the entries of the cache folder."""


class BookWarning(UserWarning):
    """A line of a book that cannot be read, and is left out."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A problem's answer: the candidate that it takes, and those that it was compared with.

    problem: its key's facts. triton: the version that compiled the candidates.
    """

    problem: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    triton: str

    @property
    def key(self) -> tuple[str, str]:
        """What two rows for the same question have in common."""
        return as_text(self.problem), self.triton

    def line(self) -> str:
        """As one line, the same for equal rows."""
        facts = {
            "problem": self.problem,
            "triton": self.triton,
            "candidates": [c.record() for c in self.candidates],
            "format": FORMAT,
        }
        return as_text(facts)

    @classmethod
    def from_line(cls, line: str | bytes) -> Row | None:
        """The row of a line; None for one of another format. Raises ValueError for anything else."""
        facts = json.loads(line)
        if not isinstance(facts, dict) or type(facts.get("format")) is not int:
            raise ValueError("no row of a book")
        if facts["format"] != FORMAT:
            return None
        problem, candidates, triton = (facts.get(name) for name in ("problem", "candidates", "triton"))
        if not isinstance(problem, dict) or not isinstance(candidates, list) or not candidates or not isinstance(triton, str):
            raise ValueError("a row without problem, candidates or triton")
        return cls(problem, tuple(Candidate.from_record(c) for c in candidates), triton)


def rows_of_lines(lines: Iterable[str], name: str) -> Iterator[Row]:
    """The rows of a book; each line that is none is told, and costs no other line. name: of the book, for the warning."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = Row.from_line(line)
        except (ValueError, RecursionError) as error:
            warnings.warn(f"{name}:{number}: no row of a tuning book, left out: {error}", BookWarning, stacklevel=2)
            continue
        if row is not None:
            yield row


def merged(books: Iterable[Iterable[Row]]) -> list[Row]:
    """The rows of all books, one for each problem and Triton: the one whose candidate was measured to be quickest, else the first; in the
    order of their keys."""
    best: dict[tuple[str, str], Row] = {}
    for row in (row for book in books for row in book):
        known = best.setdefault(row.key, row)
        if _measured(row) < _measured(known):
            best[row.key] = row
    return [best[key] for key in sorted(best)]


def kept(store: Store) -> list[Row]:
    """All that was measured with a cache folder, in the order of the keys."""
    found = []
    for key in store.keys(KIND):
        try:
            row = Row.from_line(store.get(KIND, key) or b"")
        except (ValueError, RecursionError):  # whoever asks for it drops it
            continue
        found += [] if row is None else [row]
    return merged([found])


def _measured(row: Row) -> float:
    us = row.candidates[0].measured_us
    return float("inf") if us is None else us


@functools.cache
def triton_version() -> str:
    """Of the Triton that compiles kernels here."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@functools.cache
def shipped() -> Mapping[tuple[str, str], Row]:
    """The rows that came with the package, by key."""
    folder = importlib.resources.files(__package__) / "books"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".jsonl")), key=lambda f: f.name)
    rows = merged(rows_of_lines(f.read_text(encoding="utf-8").splitlines(), f.name) for f in files)
    return {row.key: row for row in rows}


class Book:
    """What is known: rows that shipped, and those of a store, which are read and written problem by problem."""

    def __init__(self, rows: Mapping[tuple[str, str], Row] | None = None, store: Entries | None = None) -> None:
        """rows: None for those that `shipped`. store: None where what is measured here is neither asked for nor kept."""
        self._rows = shipped() if rows is None else rows
        self._store = store
        self._devices = frozenset(row.problem.get("device") for row in self._rows.values())
        self._kinds = frozenset(row.problem.get("kind") for row in self._rows.values())

    def knows(self, device: str) -> bool:
        """Whether a row for a device shipped."""
        return device in self._devices

    def answers(self, kind: str) -> bool:
        """Whether a row for a kind of problem shipped."""
        return kind in self._kinds

    def ours(self, problem: Problem) -> tuple[Candidate, ...]:
        """The candidates of a row that shipped, the chosen one first; none where there is no row."""
        row = self._rows.get((problem.key, triton_version()))
        return row.candidates if row is not None else ()

    def measured(self, problem: Problem) -> tuple[Candidate, ...]:
        """The same of what this machine has measured."""
        if self._store is None or (data := self._store.get(KIND, _place(problem))) is None:
            return ()
        try:
            row = Row.from_line(data)
        except (ValueError, RecursionError):
            row = None
        if row is None or row.key[0] != problem.key:
            log.warning("what was measured for %s cannot be used; it is measured again", problem.kind)
            self._store.drop(KIND, _place(problem))
            return ()
        return row.candidates

    def keep(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        """Keeps what was measured, the chosen one first."""
        if self._store is not None:
            row = Row(problem.facts(), tuple(candidates), triton_version())
            self._store.put(KIND, _place(problem), row.line().encode())


def _place(problem: Problem) -> str:
    return fingerprint([problem.facts(), triton_version(), FORMAT])
