"""Observers: one writes each stage's text to a folder, one counts what a report needs."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import diagram
from .observe import Observe
from .options import Options


def text_of(product: Any) -> str:
    """The printed form of a stage's product."""
    for name in ("text", "print_readable"):
        method = getattr(product, name, None)
        if callable(method):
            printed = method(print_output=False) if name == "print_readable" else method()
            return str(printed)
    return getattr(product, "host_source", None) or str(product)


_numbers: defaultdict[Path, Iterator[int]] = defaultdict(itertools.count)
"""One count for each folder, which several compiled functions may share."""


class Dump:
    """Writes `NNN-stage.txt` into `folder` for each product, and `NNN-captured.case` for each captured graph; with `diagrams`, `NNN-inductor.svg`
    and `.dot` for each graph after fusion. options: what cases are told of."""

    def __init__(self, folder: str | Path, diagrams: bool = False, options: Options | None = None) -> None:
        self._folder = Path(folder)
        self._diagrams = diagrams
        self._options = options
        self._folder.mkdir(parents=True, exist_ok=True)
        self._numbers = _numbers[self._folder.absolute()]

    def __call__(self, stage: str, product: Any) -> None:
        path = self._folder / f"{next(self._numbers):03d}-{stage}.txt"
        path.write_text(text_of(product))
        if stage == "captured" and product.graph is not None:
            self._case(product, path)
        if self._diagrams and stage == "inductor":
            notes = product.notes
            inputs = product.inputs or ()
            static = {inputs[n] for n in product.static_inputs if n < len(inputs)}
            picture = diagram.picture_of(notes["steps"], notes["buffers"], notes["outputs"], inputs, static)
            path.with_suffix(".dot").write_text(diagram.dot(picture))
            path.with_suffix(".svg").write_text(diagram.svg(picture))

    def _case(self, product: Any, path: Path) -> None:
        from .cases import SUFFIX, Case, CaseError  # which imports every package

        with contextlib.suppress(CaseError):  # a graph with functions or inputs that a case cannot hold
            case = Case.of_captured(product.graph, product.example_inputs, self._options, place=str(product.origin))
            case.save(path.with_suffix(SUFFIX))


class Tally:
    """Counts graphs and kernels as they are made, and passes everything on to `then`.

    library: the operators that kernels of the library do. unrecorded: reasons against recording what runs on a GPU as CUDA graphs. parts:
    how many CUDA graphs record the rest of it; between: what runs between them, and why. choices: which configs kernels were chosen from.
    all_scores: why attention computes all scores. budgets: what memory budgets came to.
    """

    def __init__(self, then: Observe | None = None) -> None:
        self.stages: Counter[str] = Counter()
        self.kernels = 0
        self.library: set[str] = set()
        self.unrecorded: list[str] = []
        self.parts = 0
        self.between: list[str] = []
        self.choices: list[str] = []
        self.all_scores: list[str] = []
        self.budgets: list[str] = []
        self._then = then

    def __call__(self, stage: str, product: Any) -> None:
        self.stages[stage] += 1
        if stage == "inductor":
            self.kernels += len(product.kernels)
            self.choices += [f"{name} {line}" for name, lines in product.notes.get("choices", {}).items() for line in lines]
        if stage == "runtime":
            self.library |= product.artifact.externs
        if stage == "runtime" and any(device.startswith("cuda") for device in product.artifact.devices):
            self._count(product)
        if stage == "between":
            self.between += product
        if stage == "attention":
            self.all_scores += product
        if stage == "aotautograd" and getattr(product, "kept", None) is not None:
            self.budgets.append(product.kept.text())
        if self._then is not None:
            self._then(stage, product)

    def _count(self, compiled: Any) -> None:
        refusals, parts = compiled.graph_refusals, compiled.graph_parts
        self.parts += sum(part.recordable for part in parts) if parts else not refusals
        self.between += [reason for part in parts for reason in part.reasons]
        self.unrecorded += refusals if not parts else ()

    @property
    def graphs(self) -> int:
        """How many graphs were captured."""
        return self.stages["captured"]


def both(first: Observe, second: Observe) -> Observe:
    """An observer that tells two."""

    def observe(stage: str, product: Any) -> None:
        first(stage, product)
        second(stage, product)

    return observe
