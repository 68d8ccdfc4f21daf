"""diff: which stage and operator of a case is at fault. bisect: which pass, fusion or kernel. Both give a report that prints."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import tracework_inductor as inductor
import tracework_primops as primops
from torch import fx
from tracework_primops.graph.text import print_target

from .. import _torch
from ..cases import Case
from .program import Program
from .search import attempt, first, locate, narrowed, place_of
from .slow import KernelTime, table
from .trial import STAGES, Failure, Trial

T = TypeVar("T")
LENGTH = 300
"""At most so many characters of an error are printed."""
WORDS = ("strict_pointwise", "strict_reduction", "strict")
"""Words of `numerics` that are tried for values outside of the envelope, the one that costs least first."""

PRECISION = 1000.0
"""How many times as far off as is allowed values may be for their order of rounding to be the reason."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What was found out about a case, as lines. failure: None where nothing is wrong. cause: the rule at fault, as bisect names it.
    operator, location: the first operator at fault, and the user's line that it is of. word: of `numerics` that takes a difference away.
    tries: how many times something was compiled or run for it. times: what each kernel takes, where that was asked for."""

    case: Case
    failure: Failure | None
    operator: str = ""
    location: str = ""
    word: str = ""
    cause: str = ""
    lines: tuple[str, ...] = ()
    tries: int = 0
    name: str = ""
    times: tuple[KernelTime, ...] = ()

    def __str__(self) -> str:
        found = [f"{self.name or 'case'}: {self.case}", *(f"  {line}" for line in self.lines)]
        found += [f"  {line}" for line in table(self.times)] if self.times else []
        if self.failure is None:
            return "\n".join([*found, "nothing is wrong: each stage agrees with eager within the envelope around float64"])
        found.append(f"{self.failure.kind} at stage {self.failure.stage}: {shorten(self.failure.what)}")
        found.append(f"  the stage is {STAGES[self.failure.stage]}")
        found += [f"  first at {self.operator}{f' from {self.location}' if self.location else ''}"] if self.operator else []
        found += [f"  at fault: {self.cause}"] if self.cause else []
        if self.failure.kind == "values" and self.failure.stage == "inductor" and not self.cause:
            found.append(
                f"  numerics={self.word!r} takes the difference away (docs/guides/numerics.md)"
                if self.word
                else "  no word of numerics takes the difference away: this is a bug of the compiler"
            )
        return "\n".join([*found, f"Next: {self._next()}"])

    def _next(self) -> str:
        name = self.name or "FILE.case"
        minify = f"tracework minify {name} makes a program of a few lines for a report"
        return minify if self.cause else f"tracework bisect {name} names the rule; {minify}"


def shorten(text: str) -> str:
    """On one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= LENGTH else f"{line[: LENGTH - 1]}…"


def diff(case: Case, name: str = "", time: bool = False) -> Report:
    """Runs eager, functional graph, prims and compiled code, against float64; names the first stage and operator that is at fault.

    time: tell what each kernel takes, too, beside eager's operators and its limit.

    Raises CaseError where eager's kernels cannot run the program.
    """
    return searched(case, lambda each: _diff(each, name, time), lambda report: report.failure is not None)


def _diff(case: Case, name: str, time: bool) -> Report:
    lines: list[str] = []
    trial = Trial(case.chosen, slowness=True, limits=time, seen=lambda *row: lines.append(" ".join(filter(None, row))))
    failure = trial(Program.of(case.graph(), case.level, case.inputs))
    if failure is None:
        return Report(case, None, lines=tuple(lines), tries=trial.tries, name=name, times=tuple(trial.times))
    operator, location, tries = failure.operator, failure.location, trial.tries
    if not operator:
        found = locate(failure, search := Trial.for_failure(case.chosen, failure))
        tries += search.tries
        operator, location = described(found), place_of(found) or location
    word = _word(failure, case) if failure.kind == "values" and failure.stage == "inductor" else ""
    return Report(case, failure, operator, location, word, lines=tuple(lines), tries=tries, name=name, times=tuple(trial.times))


def _word(failure: Failure, case: Case) -> str:
    if case.chosen.numerics != "default" or failure.times > PRECISION:
        return ""
    for word in WORDS:
        trial = Trial(dataclasses.replace(case.chosen, numerics=word))
        if trial(failure.program) is None:
            return word
    return ""


def described(node: fx.Node | None) -> str:
    """A call as text."""
    if node is None:
        return ""
    target: Any = node.target
    known = isinstance(target, (str, primops.Op)) or _torch.is_operator(target)
    return f"{print_target(target) if known else target.__name__} (%{node.name})"


# bisect -----------------------------------------------------------------------------------------------------------------------------


def bisect(case: Case, name: str = "") -> Report:
    """The stage at fault, then the first n of its rules with which it fails: PRIM_PASSES and decompositions, GRAPH_PASSES, reuse of memory,
    fusions, and where all of these are innocent the kernel, with the rest of the graph run by eager's kernels. Raises CaseError."""
    return searched(case, lambda each: _bisect(each, name), lambda report: report.failure is not None)


def searched(case: Case, search: Callable[[Case], T], found: Callable[[T], bool]) -> T:
    """What is found of a case; of the graph inside it where nothing is."""
    with case.entered():
        result = search(case)
        inner = None if found(result) else case.inner()
        return result if inner is None else search(inner)


def _bisect(case: Case, name: str) -> Report:
    trial = Trial(case.chosen, slowness=True)
    whole = trial(Program.of(case.graph(), case.level, case.inputs))
    if whole is None:
        return Report(case, None, tries=trial.tries, name=name)
    search = Trial.for_failure(case.chosen, whole)
    part = narrowed(whole.program, lambda part: whole.same(attempt(search, part)))  # each try compiles it
    failure = dataclasses.replace(whole, program=part)
    cause, node = SEARCHES[failure.stage](failure, search)
    operator, location = (described(node), place_of(node)) if node is not None else (failure.operator, failure.location)
    return Report(case, failure, operator, location, cause=cause, tries=trial.tries + search.tries, name=name)


Found = tuple[str, "fx.Node | None"]


def _in_autograd(failure: Failure, trial: Trial) -> Found:
    if failure.kind == "layout" and failure.operator:
        return f"the rule for the fake of {failure.operator}, whose layout is not its kernel's", None
    for what, change in AOT_KNOBS.items():
        if not failure.same(attempt(_counted(trial, aot=change), failure.program)):
            return what, locate(failure, trial)
    node = locate(failure, trial)
    return f"the trace of {described(node)}", node


AOT_KNOBS = {
    "the min-cut partitioner: with partitioner='default' it is right": {"partitioner": "default"},
    "the layout of images (channels_last)": {"channels_last": False},
    "row statistics in the place of log-probabilities": {"row_statistics": frozenset()},
    "attention as one operator": {"attention": frozenset()},
}


def _in_primops(failure: Failure, trial: Trial) -> Found:
    passes = primops.PRIM_PASSES

    def fails(count: int) -> bool:
        return failure.same(attempt(_counted(trial, prim_passes=count), failure.program))

    count = first(range(len(passes) + 1), fails)
    if count:
        return f"pass {passes[count - 1].name} of PRIM_PASSES ({count} of {len(passes)})", locate(failure, trial)
    node = locate(failure, trial)
    target: Any = node.target if node is not None else None
    rule = primops.DECOMPS.get(target)
    return f"the decomposition of {described(node)}{_at(rule)}", node


def _in_inductor(failure: Failure, trial: Trial) -> Found:
    names = list(inductor.GRAPH_PASSES)

    def fails(**options: Any) -> bool:
        return failure.same(attempt(_counted(trial, inductor={**trial.knobs.inductor, **options}), failure.program))

    if not fails(graph_passes=0):
        count = first(range(len(names) + 1), lambda n: fails(graph_passes=n))
        chosen = names[count - 1]
        return f"pass {getattr(chosen, '__name__', chosen)} of GRAPH_PASSES ({count} of {len(names)}){_at(chosen)}", locate(
            failure, trial
        )
    if not fails(memory_reuse=False):
        return "the reuse of memory: with memory_reuse=False it is right", locate(failure, trial)
    if not fails(fuse=False):
        most = len(failure.program.calls) * 4
        count = first(range(most + 1), lambda n: fails(fusions=n))
        return f"fusion {count}{_fusion(failure, trial, count)}: with fuse=False it is right", locate(failure, trial)
    node = locate(failure, trial)
    what = "lowering" if failure.kind == "raises" and failure.stage == "inductor" else "kernel"
    return f"the {what} of {described(node)}{_kernel(failure, node, trial)}", node


def _fusion(failure: Failure, trial: Trial, count: int) -> str:
    """What one fusion more puts together: the kernels without it that are none with it."""
    with_it, without = (_plan(failure, trial, fusions=n) for n in (count, count - 1))
    if with_it is None or without is None:
        return ""
    parts = [set(getattr(k, "nodes", ())) for k in without.kernels]
    for kernel in with_it.kernels:
        nodes = set(getattr(kernel, "nodes", ()))
        joined = [p for p in parts if p and p < nodes]
        if joined and nodes not in parts:
            return f", which puts {' and '.join('+'.join(sorted(p)) for p in joined)} into {kernel.name}"
    return ""


def _plan(failure: Failure, trial: Trial, **options: Any) -> Any:
    chosen = dataclasses.replace(trial.inductor_options(), **{**trial.knobs.inductor, **options})
    try:
        return inductor.plan_graph(failure.program.prims(), chosen)
    except Exception:  # the plan itself may be what fails
        return None


def _kernel(failure: Failure, node: fx.Node | None, trial: Trial) -> str:
    """The kernel of the plan that computes a node."""
    plan = _plan(failure, trial) if node is not None else None
    origin = place_of(node)
    found = (
        [
            k.name
            for k in plan.kernels
            if origin and origin in getattr(k, "origins", getattr(getattr(k, "node", None), "origins", ()))
        ]
        if plan
        else []
    )
    return f", in {' or '.join(found[:3])} of the plan; lowered with nothing after it, it fails alone" if found else ""


def _in_runtime(failure: Failure, trial: Trial) -> Found:
    if failure.kind == "raises":
        return _in_inductor(failure, trial)
    if not failure.same(attempt(_counted(trial, recorded=False), failure.program)):
        return "the recording as CUDA graphs: with cudagraphs=False it is right", locate(failure, trial)
    node = locate(failure, trial)
    return f"what is kept from a call to the next, of {described(node)}", node


SEARCHES: dict[str, Callable[[Failure, Trial], Found]] = {
    "functional": _in_autograd,
    "primops": _in_primops,
    "inductor": _in_inductor,
    "runtime": _in_runtime,
}


def _counted(trial: Trial, **knobs: Any) -> Trial:
    trial.tries += 1
    return trial.turned(**knobs)


def _at(rule: Any) -> str:
    """Where a function is written."""
    try:
        return f" at {inspect.getsourcefile(rule)}:{inspect.getsourcelines(rule)[1]}" if rule is not None else ""
    except (TypeError, OSError):
        return ""


__all__ = ["Report", "bisect", "diff"]
