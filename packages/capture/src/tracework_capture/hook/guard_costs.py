"""guard_costs(call): what the guards of the frames that a call runs take, measured, and which of them take most."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, CodeType, FrameType
from typing import Any

from .. import _C
from ..errors import GuardBuildError
from ..guards.program import Program, build_program

RUNS, ROUNDS = 50, 7
"""The least of a few rounds counts: others on the machine make them longer."""
MOST = 500
"""An entry with more guards is measured as a whole alone."""
DEAREST = 3

Given = tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...] | None]


@dataclass(frozen=True)
class EntryCost:
    """One entry of a function: microseconds that its guards take in all, and of those that take most the text and microseconds."""

    function: str
    filename: str
    line: int
    guards: int
    us: float
    dearest: tuple[tuple[str, float], ...]


def guard_costs(call: Callable[[], object]) -> list[EntryCost]:
    """Of the entries that would serve the frames of `call`, which it runs uncompiled; those that take most come first."""
    seen: dict[CodeType, Given] = {}

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in seen and _C.get_entries(code):
            seen[code] = _given(frame)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    found = [cost for code, given in seen.items() if (cost := _cost(code, given)) is not None]
    return sorted(found, key=lambda cost: -cost.us)


def _given(frame: FrameType) -> Given:
    code, known = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
    closure = tuple(CellType(known[name]) if name in known else CellType() for name in code.co_freevars)
    return tuple(known.get(name) for name in names), frame.f_globals, closure or None


def _cost(code: CodeType, given: Given) -> EntryCost | None:
    for entry in _C.get_entries(code):
        program = entry.info.program
        if isinstance(entry.program.run(*given), int):  # it is for other calls
            continue
        nothing = _microseconds(build_program((), (), code).native, given)
        whole = max(_microseconds(entry.program, given) - nothing, 0.0)
        return EntryCost(
            code.co_qualname,
            code.co_filename,
            code.co_firstlineno,
            len(program.guards),
            whole,
            _dearest(program, code, given, nothing),
        )
    return None


def _dearest(program: Program, code: CodeType, given: Given, nothing: float) -> tuple[tuple[str, float], ...]:
    """Each guard by itself, with the way to its value."""
    found = []
    for guard in program.guards if len(program.guards) <= MOST else ():
        try:
            native = build_program((guard,), (), code).native
        except GuardBuildError:  # it makes sense beside others alone
            continue
        found.append((str(guard), max(_microseconds(native, given) - nothing, 0.0)))
    return tuple(sorted(found, key=lambda pair: -pair[1])[:DEAREST])


def _microseconds(native: _C.GuardProgram, given: Given) -> float:
    run, times = native.run, []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(RUNS):
            run(*given)
        times.append(1e6 * (time.perf_counter() - began) / RUNS)
    return min(times)


__all__ = ["EntryCost", "guard_costs"]
