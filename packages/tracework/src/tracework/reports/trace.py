"""TRACEWORK_TRACE: a file of events for each process, a line of JSON each, whose rows are those of a report's data."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, TextIO

import tracework_capture as capture

from .. import _torch, activity, observe
from .._version import __version__
from ..errors import InvalidArgument
from . import document
from .recorder import Recorder

SCHEMA, VERSION = "tracework.trace", 1
_begun: dict[str, contextlib.ExitStack] = {}
"""Folder -> what listens for it until the process ends."""


class Trace:
    """Writes an event as soon as it is known. Each has "event" and "time", in seconds since 1970."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self._graphs = folder, threading.RLock(), 0
        self._recorder = Recorder()
        self._opened()

    def _opened(self) -> TextIO:
        """The file of this process, which a fork of it has not. Raises OSError."""
        self._process = os.getpid()
        self._folder.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        file = Path(self._folder, f"tracework-{stamp}-{self._process}.jsonl").open("a", encoding="utf-8")
        self._file: TextIO | None = file
        versions = {"tracework": __version__, "torch": _torch.release(), "python": sys.version.split()[0]}
        self._write("start", schema=SCHEMA, version=VERSION, versions=versions, arguments=sys.argv, process=self._process)
        return file

    def of_capture(self, event: str, what: Any) -> None:
        """As a watcher of capture."""
        if event == "captured":
            self._write("graph", **document.graph_row(self._graphs, what))
            self._graphs += 1
        else:
            self._write(event, **document.ROWS[event](what))

    def product(self, stage: str, product: Any) -> None:
        """As a watcher of products: one event for each graph, when it is loaded."""
        self._recorder.product(stage, product)
        own = self._recorder.current()
        if stage == "runtime" and own is not None:
            self._write("compiled", **document.compiled_row(own, document.files_of([own])))
            self._recorder.compiled.clear()  # it is written: a long run keeps nothing

    def loaded(self, compiled: Any) -> Any:
        """As a watcher: the same."""
        return compiled

    def ended(self, span: activity.Span) -> None:
        """As a watcher of stages."""
        self._write("stage", stage=span.stage, of=span.what, seconds=span.seconds, own_seconds=span.own, thread=span.thread)

    def _write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "time": time.time(), **fields}, default=str)
        with self._lock:
            try:
                file = self._file if self._process == os.getpid() else self._opened()
                if file is not None:
                    file.write(line + "\n")
                    file.flush()
            except OSError as error:  # a full disk is no reason for a program to fail
                self._file = None
                warnings.warn(f"TRACEWORK_TRACE: {error}. No more events are written.", RuntimeWarning, stacklevel=2)


def begin(folder: str) -> None:
    """From now on this process writes its events below `folder`. Raises InvalidArgument where it cannot be written."""
    if folder in _begun:
        return
    try:
        trace = Trace(Path(folder))
    except OSError as error:
        raise InvalidArgument(f"TRACEWORK_TRACE: {error}. Give a folder that can be written.") from error
    stack = _begun[folder] = contextlib.ExitStack()
    for each in (capture.watched(trace.of_capture), observe.watched(trace), activity.watched(trace.ended)):
        stack.enter_context(each)
