"""Which candidate each problem takes: the book's, else the predicted one, else, where somebody measures, the quickest of the likely ones.

What moves bits comes from the book that shipped or from prediction, in every mode, so that two runs agree; only candidates with the bits
of that one are timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tracework_runtime.launch.timing import NOT_NOW

from .book import Book
from .cost import Device, predict
from .record import Candidate, Problem

__all__ = ["LIBRARY", "Measure", "Question", "decide"]

LIBRARY = "extern"
"""The way of a candidate that calls the library."""
FAVOUR = 0.9
"""A way of ours is predicted to take less than this share of the library's time, or the library is taken."""
MOST_TIMED = 4
"""Candidates that are timed at first, the most likely ones."""
TIE = 0.02
"""Times that differ by this share are equal: the earlier candidate is taken."""

Measure = Callable[[Sequence[tuple[int, Candidate]]], Sequence[float | str]]
"""(number of the question, candidate) -> microseconds, or why there are none. Those of one question that are asked for together are timed in
turns."""


def _none(candidate: Candidate) -> Sequence[Candidate]:
    return ()


@dataclasses.dataclass(frozen=True)
class Question:
    """A problem with what may solve it.

    candidates: the best guess first. neighbours: those that differ little from a candidate, to look at where it wins.
    """

    problem: Problem
    candidates: tuple[Candidate, ...]
    neighbours: Callable[[Candidate], Sequence[Candidate]] = _none


def decide(
    questions: Sequence[Question], book: Book, device: Device, measure: Measure | None = None
) -> list[tuple[Candidate, ...]]:
    """For each question its candidates, the one to take first, each with its costs and the reason. Nothing is timed without `measure`.

    Ties go by the order of candidates, so that equal questions, books and measurements have equal answers.
    """
    open_ones: dict[int, _Search] = {}
    answers: list[tuple[Candidate, ...]] = []
    for number, question in enumerate(questions):
        found = _known(question, book.ours(question.problem))
        if found is None:
            ordered = _ordered(question, device)
            found = _known(question, book.measured(question.problem), ordered[0].bits) if measure is not None else None
            if found is None and measure is not None:
                open_ones[number] = _Search(question, ordered, device)
            found = found or tuple(ordered)
        answers.append(found)
    asked = {number: search.begin() for number, search in open_ones.items()}
    while measure is not None and any(asked.values()):
        flat = [(number, candidate) for number, candidates in asked.items() for candidate in candidates]
        for (number, candidate), found_us in zip(flat, measure(flat), strict=True):
            open_ones[number].tell(candidate, found_us)
        asked = {number: search.next() for number, search in open_ones.items() if asked.get(number)}
    for number, search in open_ones.items():
        answers[number] = search.answer()
        if search.whole and answers[number][0].measured_us is not None:
            book.keep(questions[number].problem, answers[number])
    return answers


def _known(question: Question, row: Sequence[Candidate], bits: str | None = None) -> tuple[Candidate, ...] | None:
    """A row's candidates, if its first is one that this version makes. bits: that it must have, where the row is not to move any."""
    if not row or (bits is not None and row[0].bits != bits):
        return None
    like = [c for c in question.candidates if c.way == row[0].way and c.constants.keys() == row[0].constants.keys()]
    return (row[0].replace(reason="from the book"), *row[1:]) if like else None


def _ordered(question: Question, device: Device) -> list[Candidate]:
    """By prediction where it is to be trusted; else as they come."""
    predicted = [_predicted(question.problem, c, device) for c in question.candidates]
    if question.problem.kind not in device.calibrated:
        return [predicted[0].replace(reason=predicted[0].reason or "the first guess"), *predicted[1:]]
    cost = {c.identity: (c.predicted_us or 0.0) * (FAVOUR if c.way == LIBRARY else 1.0) for c in predicted}
    first, *rest = sorted(predicted, key=lambda c: cost[c.identity])
    return [first.replace(reason=first.reason or "predicted"), *rest]


def _predicted(problem: Problem, candidate: Candidate, device: Device) -> Candidate:
    if candidate.predicted_us is not None:
        return candidate
    return candidate.replace(predicted_us=round(predict(problem, candidate.config, device), 3))


class _Search:
    """The timing of one question's candidates: the likely ones, then the winner's neighbours while they are quicker."""

    def __init__(self, question: Question, ordered: Sequence[Candidate], device: Device) -> None:
        self.question, self.ordered, self.device = question, list(ordered), device
        self.bits = ordered[0].bits
        self.looked_at = {c.identity for c in ordered}
        self.before = float("inf")
        self.whole = True
        """Whether all that was asked for was answered."""

    def begin(self) -> list[Candidate]:
        """What to time first; nothing where there is no choice."""
        first, *rest = (c for c in self.ordered if c.bits == self.bits)
        likely = sorted(rest, key=lambda c: c.predicted_us or 0.0)[: MOST_TIMED - 1]
        found = [first, *likely]
        return found if len(found) > 1 or self._fresh(first) else []

    def tell(self, candidate: Candidate, found: float | str) -> None:
        """What a candidate takes, or why that is not known."""
        place = next(n for n, c in enumerate(self.ordered) if c.identity == candidate.identity)
        change = {"reason": found} if isinstance(found, str) else {"measured_us": round(found, 3), "reason": ""}
        self.ordered[place] = candidate.replace(**change)
        self.whole &= not (isinstance(found, str) and found.startswith(NOT_NOW))

    def next(self) -> list[Candidate]:
        """The neighbours of a winner that is quicker than the one before."""
        winner = self._winner()
        if winner is None or winner.measured_us is None or winner.measured_us >= self.before * (1 - TIE):
            return []
        self.before = winner.measured_us
        fresh = [_predicted(self.question.problem, c, self.device) for c in self._fresh(winner)]
        self.looked_at |= {c.identity for c in fresh}
        self.ordered += fresh
        return fresh

    def _fresh(self, candidate: Candidate) -> list[Candidate]:
        return [c for c in self.question.neighbours(candidate) if c.bits == self.bits and c.identity not in self.looked_at]

    def _winner(self) -> Candidate | None:
        timed = [c for c in self.ordered if c.measured_us is not None]
        best = min((c.measured_us for c in timed if c.measured_us is not None), default=0.0)
        return next((c for c in timed if c.measured_us is not None and c.measured_us * (1 - TIE) <= best), None)

    def answer(self) -> tuple[Candidate, ...]:
        """All that were looked at, the one to take first, then by time."""
        winner = self._winner() or self.ordered[0]
        rest = sorted((c for c in self.ordered if c is not winner), key=lambda c: (c.measured_us is None, c.measured_us or 0.0))
        return (winner, *(c if c.bits == self.bits or c.reason else c.replace(reason="other bits") for c in rest))
