"""What a thread is compiling, in which stage and for how long: times for the log and for reports, and a line on a terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeVar

log = logging.getLogger("tracework.timing")
MODULES = os.path.join(os.path.dirname(__file__), "compiled_module.py")
"""Where the functions are written that call modules: their names say which."""
PATIENCE = 2.0
"""Seconds of a compilation before a line says what it is doing."""
STAGES: Mapping[str, str] = {
    "capture": "reading the graph from Python",
    "aotautograd": "tracing forward and backward",
    "primops": "rewriting into prims",
    "inductor": "lowering, fusing and rendering kernels",
    "runtime": "building and loading kernels",
}
"""Stage -> what is being done in it."""


@dataclass
class _Running:
    name: str
    what: str
    started: float
    inside: float = 0.0
    """Seconds that stages inside of it took."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running: list[_Running] = []


_thread = _Thread()
_collectors: list[defaultdict[str, float]] = []
Ended = Callable[["Span"], None]
_Item = TypeVar("_Item")
_watchers: list[Ended] = []


@dataclass(frozen=True)
class Span:
    """A stage that has ended. what: the compilation that it is part of. own: its seconds, without those of stages inside of it."""

    stage: str
    what: str
    started: float
    seconds: float
    own: float
    thread: int


@contextlib.contextmanager
def _among(listed: list[_Item], item: _Item) -> Iterator[None]:
    """The item is in the list in the block; of equal ones it is this one that leaves."""
    listed.append(item)
    try:
        yield
    finally:
        listed[:] = [each for each in listed if each is not item]


@contextlib.contextmanager
def watched(ended: Ended) -> Iterator[None]:
    """`ended` is called with each stage that ends in the block, by any thread."""
    with _among(_watchers, ended):
        yield


def compiling() -> str:
    """What this thread is compiling; empty where that is not known."""
    return next((each.what for each in _thread.running if each.what), "")


@contextlib.contextmanager
def collected() -> Iterator[Mapping[str, float]]:
    """The seconds that each stage takes by itself, in any thread, in the block."""
    seconds: defaultdict[str, float] = defaultdict(float)
    with _among(_collectors, seconds):
        yield seconds


@contextlib.contextmanager
def stage(name: str, what: str = "", progress: bool | None = None) -> Iterator[None]:
    """A stage of STAGES, of the compilation of `what`, whose time is without the stages inside of it.

    The outermost one has the line, where `progress` and the terminal allow it.
    """
    running = _thread.running
    own = _Running(name, what, time.perf_counter())
    of = compiling() or what
    running.append(own)
    line = Line(running) if len(running) == 1 and wanted(progress) else None
    try:
        yield
    finally:
        if line is not None:
            line.end()
        running.remove(own)
        seconds = time.perf_counter() - own.started
        if running:
            running[-1].inside += seconds
        for collector in _collectors:
            collector[name] += seconds - own.inside
        for ended in _watchers:
            ended(Span(name, of, own.started, seconds, seconds - own.inside, threading.get_ident()))
        log.debug("%s%s: %.3f s", name, what and f" of {what}", seconds - own.inside)


def frame(progress: bool | None, code: CodeType) -> contextlib.AbstractContextManager[None]:
    """The capture of a frame, and what is compiled in it."""
    if code.co_filename == MODULES:
        return stage("capture", code.co_qualname.removesuffix(".__call__"), progress)
    return stage("capture", f"{code.co_name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})", progress)


def wanted(progress: bool | None) -> bool:
    """Whether a line is shown: where it was asked for, or left open and standard error is a terminal, which a notebook's is not."""
    if progress is not None:
        return progress
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


class Line:
    """The line of one compilation: there from PATIENCE on, and gone at its end."""

    def __init__(self, running: list[_Running]) -> None:
        self._running = running
        self._lock = threading.RLock()
        self._shown: Any = None
        self._over = False
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        from rich.console import Console  # a tenth of a second
        from rich.live import Live

        with self._lock:
            if not self._over:
                console = Console(stderr=True, force_terminal=True)
                settings: Any = {"console": console, "refresh_per_second": 4, "transient": True}
                self._shown = Live(get_renderable=self._text, redirect_stdout=False, redirect_stderr=False, **settings)
                self._shown.start()

    def _text(self) -> Any:
        from rich.text import Text  # as _show() does

        running = list(self._running)
        if not running:
            return Text("")
        what = next((each.what for each in running if each.what), "a graph")
        seconds = time.perf_counter() - running[0].started
        text = f"tracework: {seconds:.0f} s, {what}: {STAGES[running[-1].name]}"
        return Text(text, no_wrap=True, overflow="ellipsis")

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
        if self._shown is not None:
            self._shown.stop()
