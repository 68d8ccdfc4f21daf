"""Tensor operations that were recorded and run without a compiled graph: said once a place, and to whoever collects; and the plain run of a
frame whose graph raised (graph.checks), which emitted code refers to.

Graph breaks, and frames without tensor operations, are no such thing: explain and the logs tell of these.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from . import _C, _torch
from .errors import ControlMisuse
from .own_packages import is_own_module
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
    reason: str,
    place: str,
    cure: str = NEXT,
    text: str = "",
    category: type[UncompiledWarning] = UncompiledWarning,
    quiet: bool = False,
) -> None:
    """Says that tensor operations run uncompiled: to the collectors and, once for a reason at a place, to the log and as a warning for the
    user's file and line. text: the warning's, instead of one that is made of the others. quiet: only the collectors are told."""
    what = Uncompiled(reason, place)
    tell("uncompiled", what)
    for found in _collectors:
        if what not in found:
            found.append(what)
    if quiet or what in _warned:
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


_LIBRARIES = frozenset({"builtins", "torch", "numpy", "triton"})


def is_of_operators(error: BaseException) -> bool:
    """Whether an operator may have raised it, so that plain Python would, too: a signal's handler may end the graph with another, and
    so do wrong results of a backend, a checkpoint around the call that needs no more of it, and hooks of the program that autograd calls
    with what it saves, which would be called twice."""
    kind = type(error)
    of_others = issubclass(kind, (OSError, MemoryError, ControlMisuse, _torch.autograd.StopRecomputation))
    of_library = kind.__module__.partition(".")[0] in _LIBRARIES or is_own_module(kind.__module__)
    return of_library and not (of_others or _is_of_a_hook(error))


def _is_of_a_hook(error: BaseException) -> bool:
    """Whether the hook around the call that packs saved tensors raised it, or may have: its code is in the traceback, or it has none."""
    pack = _torch.autograd.packing_hook()
    code = getattr(pack, "__code__", None)
    if pack is None or code is None:
        return pack is not None
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def run_with_handlers(given: list[Any]) -> Any:
    """The frame as plain Python after its graph raised, where the program may have a handler for that. `given`: what was raised, whose
    traceback holds the frame of the generated code, which holds nothing any more; the function; its arguments."""
    _, function, *args = given
    given.clear()
    return function(*args)


def run_again(place: str, given: list[Any]) -> Any:
    """As run_with_handlers, where it raises by itself, as a rule, and with the program's own traceback; what the graph said is a note."""
    kind, text = type(given[0]).__name__, str(given[0])
    try:
        result = run_with_handlers(given)
    except Exception as error:
        if str(error) != text:
            error.add_note(f"the compiled graph raised {kind}: {text}")
        raise
    report_uncompiled(f"the graph raised {kind} ({text}) where plain Python does not", place, PLEASE_REPORT)
    return result
