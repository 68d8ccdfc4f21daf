"""Tensor operations that were recorded and run without a compiled graph: said once a place, and to whoever collects.

Graph breaks, and frames without tensor operations, are no such thing: explain and the logs tell of these.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from . import _C
from .watchers import tell

log = logging.getLogger("tracework.fallbacks")
log.addHandler(logging.NullHandler())  # the warning is what a program without handlers shows
PLEASE_REPORT = "please report it, with what TRACEWORK_LOGS=fallbacks prints"
NEXT = "TRACEWORK_LOGS=breaks,fallbacks and tracework.explain(function)(*args) say more"


class UncompiledWarning(UserWarning):
    """Tensor operations of a compiled function run uncompiled; the text says why, where, and what to do."""


class RecompileLimitWarning(UncompiledWarning):
    """A function was compiled as often as recompile_limit allows; new kinds of calls run as plain Python."""


@dataclass(frozen=True)
class Uncompiled:
    """One place of it. place: "file:line", and of what, as far as that is known."""

    reason: str
    place: str

    def __str__(self) -> str:
        return f"{self.reason} (at {self.place})"


_PLACE = re.compile(r"(.*?)(?::(\d+))?(?: in .*| \(.*)?$", re.DOTALL)
_warned: set[Uncompiled] = set()
_collectors: list[list[Uncompiled]] = []


@contextlib.contextmanager
def collected() -> Iterator[list[Uncompiled]]:
    """What is reported, by any thread, in the block; those that were said before, too."""
    found: list[Uncompiled] = []
    _collectors.append(found)
    try:
        yield found
    finally:
        _collectors[:] = [each for each in _collectors if each is not found]


def report_uncompiled(
    reason: str, place: str, cure: str = NEXT, text: str = "", category: type[UncompiledWarning] = UncompiledWarning
) -> None:
    """Says that tensor operations run uncompiled: to the collectors and, once for a reason at a place, to the log and as a warning for the
    user's file and line. text: the warning's, instead of one that is made of the others."""
    what = Uncompiled(reason, place)
    tell("uncompiled", what)
    for found in _collectors:
        if what not in found:
            found.append(what)
    if what in _warned:
        return
    _warned.add(what)
    _warn(text or f"tensor operations run uncompiled: {reason}\n  at {place}\n  try: {cure}", place, category)


def _emit_warning(text: str, place: str, category: type[UncompiledWarning]) -> None:
    log.warning("%s", text)
    file, line = _PLACE.match(place).groups()  # type: ignore[union-attr]
    # a program that makes errors of warnings has not asked for its call to fail
    with contextlib.suppress(category):
        warnings.warn_explicit(text, category, file, int(line or 0))


_warn = _C.Scoped(_emit_warning, None)  # handlers of logs and of warnings are no part of the program


def report_stillborn(code: CodeType, number: int) -> None:
    """Warns that a guard of what was compiled for a call does not hold for that call: the evaluator runs the frame as plain Python."""
    place = f"{code.co_filename}:{code.co_firstlineno} in {code.co_qualname}"
    report_uncompiled(f"guard {number} of what was compiled for this call does not hold for it", place, PLEASE_REPORT)


def forget_warned() -> None:
    """What was said may be said again."""
    _warned.clear()
