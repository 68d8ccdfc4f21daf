"""Searches over parts of a program: which of its calls fail alone, and with how many of something it fails first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from torch import fx

from ..cases import CaseError
from .program import Program, is_part
from .trial import Failure, Trial

Fails = Callable[[Program], bool]


def ends(program: Program) -> list[int]:
    """How many calls there may be in a part from the first: parts of a result stay with it."""
    calls = program.calls
    return [n for n in range(1, len(calls) + 1) if n == len(calls) or not is_part(calls[n])]


def first(counts: Sequence[int], fails: Callable[[int], bool], few: bool = False) -> int:
    """The smallest of the counts at which something fails that is known to fail at the last one; by halving. few: it is likely a small one, and
    these are tried first."""
    low, high, step = 0, len(counts) - 1, 1
    while low < high:
        middle = min(low + step - 1, high - 1) if few else (low + high) // 2
        if fails(counts[middle]):
            high, few = middle, False
        else:
            low, step = middle + 1, 2 * step
    return counts[high]


def part(program: Program, calls: Collection[fx.Node], values: dict[fx.Node, Any]) -> Program | None:
    """Some of the calls, and all that the others read of them."""
    return program.cut(calls, program.live(calls, values), values)


def prefix(program: Program, count: int, values: dict[fx.Node, Any]) -> Program | None:
    """The first calls."""
    return part(program, program.calls[:count], values)


def attempt(trial: Trial, program: Program) -> Failure | None:
    """What a part of a program fails with; None where eager's kernels cannot run it either."""
    try:
        return trial(program)
    except CaseError:
        return None


def narrowed(program: Program, fails: Fails) -> Program:
    """Half of the calls again and again, as long as one half fails by itself, or the middle half does: what fails is one call most times,
    and this takes as long as two trials of the whole."""
    while True:
        found = _half_that_fails(program, fails)
        if found is None:
            return program
        program = found


def _half_that_fails(program: Program, fails: Fails) -> Program | None:
    places, calls = [0, *ends(program)], program.calls
    many = len(places) - 1
    if many < 2:
        return None
    values = program.values(copies=True)
    middle, windows = many // 2, [(0, many // 2), (many // 2, many)]
    windows += [(middle // 2, middle // 2 + (many + 1) // 2)] if many > 3 else []
    for begin, end in windows:
        found = part(program, calls[places[begin] : places[end]], values)
        if found is not None and found.calls and fails(found):
            return found
    return None


def at_lines(program: Program, places: Collection[str], values: dict[fx.Node, Any]) -> Program | None:
    """The calls that stand at places of the user's source; places of later stages have the operator behind them."""
    chosen: dict[fx.Node, None] = {}
    for node in program.calls:
        own = place_of(node)
        if (own and any(place == own or place.startswith(f"{own} ") for place in places)) or is_part(node):
            if not is_part(node) or node.args[0] in chosen:
                chosen[node] = None
    return part(program, chosen, values) if 0 < len(chosen) < len(program.calls) else None


def place_of(node: fx.Node | None) -> str:
    """The user's line that a call is of."""
    return "" if node is None else str(node.meta.get("origin") or node.meta.get("stack") or "")


def locate(failure: Failure, trial: Trial) -> fx.Node | None:
    """The last of the smallest number of first calls that fail in the same way; None where nothing is called."""

    def same(part: Program | None) -> bool:
        return part is not None and failure.same(attempt(trial, part))

    program = narrowed(failure.program, same)
    if not program.calls:
        return None
    values = program.values(copies=True)
    count = first(ends(program), lambda n: same(prefix(program, n, values)))
    return next(n for n in reversed(program.calls[:count]) if not is_part(n))


__all__ = ["at_lines", "attempt", "ends", "first", "locate", "narrowed", "part", "place_of", "prefix"]
