"""What each kernel takes, beside eager's operators that compute the same and the least time for its bytes and operations."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tracework_runtime as runtime
from tracework_primops import place_of
from tracework_primops.graph.prim_graph import bind_symbols

from ..reports.document import number
from ..reports.machine import machine_of
from ..reports.text import duration
from .program import Program, copied

RUNS = 9
ENOUGH = 1.0
"""Seconds after which no more runs are measured."""
SHOWN = 15
"""Kernels that a table has at most, those first that lose most."""
LENGTH = 48


@dataclasses.dataclass(frozen=True)
class KernelTime:
    """Kernels that compute the same lines of the program, in microseconds. eager: what eager's operators take at these lines; limit: the
    least time on this machine, by the kernels' bytes and operations, None where these were not asked for."""

    names: tuple[str, ...]
    place: str
    us: float
    eager: float
    limit: float | None = None

    @property
    def name(self) -> str:
        """All of them."""
        return " + ".join(self.names)


class _Nothing:
    """A watch that sees nothing more than StepTimes does."""

    def call(self, run: Callable[..., Any], inputs: list[Any]) -> Any:
        return run(inputs)

    def line_begins(self, line: int) -> None: ...

    def line_ends(self, line: int) -> None: ...


def kernel_times(program: Program, eager: Program, loaded: runtime.CompiledFn, limits: bool = False) -> list[KernelTime]:
    """The shortest of calls in turns, as others on the machine make calls longer and never shorter; those that lose most come first. Empty
    where the kernels cannot be timed one by one.

    Args:
        program: that the kernels are of.
        eager: the same graph, of the operators that eager runs.
        limits: work out what the machine can, which takes it a second at first.
    """
    artifact = loaded.artifact
    on_gpu = any(device.startswith("cuda") for device in artifact.devices)
    times, eagers = (runtime.StepTimes(on_gpu, _Nothing()) for _ in range(2))
    watched = runtime.watched(loaded, times)
    if watched is loaded:
        return []
    inputs, given = copied(program.inputs), copied(eager.inputs)

    def by_operators(own: list[Any]) -> tuple[Any, ...]:
        return tuple(eager.values(own, watch=eagers).values())

    begun = time.perf_counter()
    for count in range(RUNS):
        watched(list(inputs))
        eagers.call(by_operators, given)
        if count > 2 and time.perf_counter() - begun > ENOUGH:
            break
    _, lines = times.microseconds(min)
    _, operators = eagers.microseconds(min)
    return _grouped(program, eager, artifact, lines, operators, limits)


def _grouped(
    program: Program,
    eager: Program,
    artifact: runtime.Artifact,
    lines: Mapping[int, float],
    operators: Mapping[int, float],
    limits: bool,
) -> list[KernelTime]:
    """Kernels that share a line of the program are looked at together."""
    steps = artifact.notes.get("steps", ())
    places = [artifact.places_of(step) for step in steps]
    taken: dict[str, float] = {}
    whole: dict[str, str] = {}
    for number_, node in enumerate(eager.calls):
        origin = str(node.meta.get("origin") or "")
        place = place_of(origin)
        whole.setdefault(place, origin)
        taken[place] = taken.get(place, 0.0) + operators.get(number_, 0.0)
    least = _limits(program, artifact) if limits else [None] * len(steps)
    found = []
    for group in _sharing(places):
        own = dict.fromkeys(place for n in group for place in places[n])
        us = sum(lines.get(line, 0.0) for n in group for line in steps[n]["lines"])
        bounds = [bound for n in group if (bound := least[n]) is not None]
        names = tuple(dict.fromkeys(steps[n]["name"] for n in group))
        eagers = sum(taken.get(place, 0.0) for place in own)
        first = next(iter(own), "")
        found.append(KernelTime(names, whole.get(first, first), us, eagers, sum(bounds) if bounds else None))
    return sorted(found, key=lambda k: min(k.eager, k.limit if k.limit is not None else k.eager) - k.us)


def _sharing(places: Sequence[Iterable[str]]) -> list[list[int]]:
    """Numbers of the rows that have an item in common, directly or by others between."""
    groups: list[tuple[set[str], list[int]]] = []
    for number_, items in enumerate(places):
        own, members = set(items), [number_]
        apart = []
        for known, others in groups:
            if known & own:
                own |= known
                members = others + members
            else:
                apart.append((known, others))
        groups = [*apart, (own, members)]
    return [members for _, members in groups]


def _limits(program: Program, artifact: runtime.Artifact) -> list[float | None]:
    """Microseconds for each step."""
    machine = machine_of(next(iter(sorted(artifact.devices, reverse=True)), "cpu"))
    symbols = bind_symbols([n.meta.get("spec") for n in program.placeholders], program.inputs)
    sizes = {str(symbol): value for symbol, value in symbols.items()}
    found: list[float | None] = []
    for step in artifact.notes.get("steps", ()):
        moved, flops = number(step["bytes"], sizes), number(step["flops"], sizes)
        dtype = next((artifact.notes["buffers"][b][0] for b in step["writes"] if b in artifact.notes["buffers"]), "float32")
        kind = dtype if step["kind"] in ("library", "core") else "float32"
        found.append(None if moved is None else 1e6 * machine.limit(moved, flops or 0, kind)[0])
    return found


def table(times: Sequence[KernelTime]) -> list[str]:
    """A line for each kernel, those first that lose most against eager's operators and their limit."""
    rows = [("kernel", "takes", "eager", "limit", "line")]
    for each in times[:SHOWN]:
        limit = duration(each.limit) if each.limit is not None else ""
        name = each.name if len(each.name) <= LENGTH else f"{each.name[: LENGTH - 1]}…"
        rows.append((name, duration(each.us), duration(each.eager), limit, each.place))
    widths = [max(len(row[n]) for row in rows) for n in range(4)]
    lines = ["  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in (1, 2, 3)), row[4]]).rstrip() for row in rows]
    return lines + ([f"and {len(times) - SHOWN} more"] if len(times) > SHOWN else [])


__all__ = ["KernelTime", "kernel_times", "table"]
