"""A plan's kernels with the block sizes that they are to have."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from tracework_runtime import DEFAULT_OPTIONS, KernelSource, RuntimeOptions
from tracework_runtime.cache.memory import open_store
from tracework_runtime.device import driver
from tracework_runtime.launch.timing import Trial, time_trials

from ..autotune import cost
from ..autotune.book import Book
from ..autotune.choose import Measure, Question, decide
from ..autotune.record import Candidate, report
from ..ir.index import hint
from ..schedule.plan import KernelPlan, LoopKernel

__all__ = ["Timing", "tuned"]

log = logging.getLogger("tracework.inductor.autotune")
BUDGET_S = 15.0
"""Seconds that one graph's search may take; what was found until then is used."""

Ask = Callable[[LoopKernel, str], Question | None]
"""(kernel, name of its device) -> what can be chosen of it."""
Time = Callable[[Sequence[Sequence[tuple[LoopKernel, Candidate]]]], list[list[float | str]]]
"""Groups of candidates, each with its kernel -> microseconds of each, or why there are none."""


def tuned(plan: KernelPlan, ask: Ask, book: Book, timing: Time | None = None) -> KernelPlan:
    """The plan with a config for each kernel that the book has an answer for, or `timing` finds one for; the same plan where none has.

    Kernels that are the same problem are asked about once.
    """
    asked: dict[str, Question] = {}
    alike: dict[str, list[LoopKernel]] = {}
    for kernel in plan.kernels:
        if isinstance(kernel, LoopKernel) and kernel.device.type == "cuda":
            device = cost.device(kernel.device.index or 0)
            question = ask(kernel, device.name) if timing is not None or book.knows(device.name) else None
            if question is not None:
                asked.setdefault(question.problem.key, question)
                alike.setdefault(question.problem.key, []).append(kernel)
    if not asked:
        return plan
    firsts = [alike[key][0] for key in asked]
    device = cost.device(firsts[0].device.index or 0)
    answers = decide(list(asked.values()), book, device, None if timing is None else _measure(firsts, timing))
    chosen = {kernel.name: answer for key, answer in zip(asked, answers, strict=True) for kernel in alike[key]}
    for name, answer in chosen.items():
        for line in report(answer):
            log.info("kernel %s %s", name, line)
    kernels = tuple(
        dataclasses.replace(k, config=chosen[k.name][0].config) if isinstance(k, LoopKernel) and k.name in chosen else k
        for k in plan.kernels
    )
    return dataclasses.replace(plan, kernels=kernels, choices={**plan.choices, **chosen})


def _measure(kernels: Sequence[LoopKernel], timing: Time) -> Measure:
    def measure(candidates: Sequence[tuple[int, Candidate]]) -> list[float | str]:
        groups: dict[int, list[Candidate]] = {}
        for number, candidate in candidates:
            groups.setdefault(number, []).append(candidate)
        found = timing([[(kernels[number], c) for c in group] for number, group in groups.items()])
        known = {
            (number, c.identity): us
            for (number, group), times in zip(groups.items(), found, strict=True)
            for c, us in zip(group, times, strict=True)
        }
        return [known[number, c.identity] for number, c in candidates]

    return measure


class Timing:
    """Times a graph's candidates on the GPU, for BUDGET_S at most: the kernels first that take longest, as far as their bytes say."""

    def __init__(self, renderer: Any, symbols: Any, options: RuntimeOptions = DEFAULT_OPTIONS) -> None:
        """symbols: the SymbolTable of the kernels' sizes."""
        self._renderer, self._symbols, self._options = renderer, symbols, options
        self._until = time.monotonic() + BUDGET_S

    def __call__(self, groups: Sequence[Sequence[tuple[LoopKernel, Candidate]]]) -> list[list[float | str]]:
        order = sorted(range(len(groups)), key=lambda n: -(groups[n][0][1].predicted_us or 0.0))
        trials = [[self._trial(kernel, candidate) for kernel, candidate in groups[n]] for n in order]
        times = time_trials(trials, self._options, open_store(self._options), driver.driver(), self._until)
        by_group = dict(zip(order, times, strict=True))
        return [by_group[n] for n in range(len(groups))]

    def _trial(self, kernel: LoopKernel, candidate: Candidate) -> Trial:
        rendered = self._renderer.render(dataclasses.replace(kernel, config=candidate.config))
        (source,) = self._renderer.pack([("candidate", rendered)])
        placed = KernelSource(
            "candidate", "triton", source.source, source.signature, {**source.launch, "device": kernel.device.index or 0}
        )
        return Trial(
            placed,
            tuple(hint(kernel.layouts[b].elements(), self._symbols) for b in kernel.buffers),
            frozenset(n for n, b in enumerate(kernel.buffers) if b in kernel.writes),
            tuple(hint(s, self._symbols) for s in kernel.sizes),
        )
