"""Who sees the launches and calls of a host program one by one: ranges for torch's profiler, and times of steps."""

from __future__ import annotations

import collections
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from tracework_runtime import _torch

__all__ = ["Ranges", "StepTimes", "Watch"]

Call = Callable[[list[Any]], tuple[Any, ...]]
CALLS = 50
"""The last ones count."""
_CYCLES = 2_000_000
"""Of a GPU in a millisecond, about."""
_LONGEST_WAIT = 50.0
"""Milliseconds for which a GPU waits until the host has launched everything."""


class Watch(Protocol):
    """Sees one compiled function run."""

    def call(self, run: Call, inputs: list[Any]) -> tuple[Any, ...]:
        """run(inputs), while which lines begin and end."""

    def line_begins(self, line: int) -> None:
        """A launch or call: its number among the host program's lines."""

    def line_ends(self, line: int) -> None:
        """The same one has been launched, or has returned."""


class _OpenRanges(threading.local):
    """A thread's, of the call that it is in."""

    def __init__(self) -> None:
        self.ranges: list[Any] = []


class _Spans(threading.local):
    """A thread's: line, begin and end, of the call that it is in."""

    def __init__(self) -> None:
        self.known: list[tuple[int, Any, Any]] = []
        self.begun: Any = None


class Ranges:
    """A range for the call and one for each line while torch's profiler, or its emit_nvtx, is on."""

    def __init__(self, name: str, names: Mapping[int, str]) -> None:
        """names: of lines."""
        self._name, self._names = name, names
        self._thread = _OpenRanges()

    @classmethod
    def of(cls, artifact: Any, name: str) -> Ranges:
        """With the names of an artifact's kernels and library calls, and the first line of the program that each computes."""
        names: dict[int, str] = {}
        for step in artifact.notes.get("steps", ()):
            place = next(iter(artifact.places_of(step)), "").partition(" ")[0].rpartition("/")[2]
            names |= dict.fromkeys(step["lines"], f"{step['name']} ({place})" if place else step["name"])
        return cls(name, names)

    def call(self, run: Call, inputs: list[Any]) -> tuple[Any, ...]:
        if not _torch.profiler_enabled():
            return run(inputs)
        own = self._thread
        around, own.ranges = own.ranges, []
        with torch.profiler.record_function(self._name):
            try:
                return run(inputs)
            finally:
                self._close()  # of the line that raised
                own.ranges = around

    def line_begins(self, line: int) -> None:
        if _torch.profiler_enabled():
            entered = torch.profiler.record_function(self._names.get(line, self._name))
            entered.__enter__()
            self._thread.ranges.append(entered)

    def line_ends(self, line: int) -> None:
        self._close()

    def _close(self) -> None:
        while self._thread.ranges:
            self._thread.ranges.pop().__exit__(None, None, None)


class StepTimes:
    """How long each line takes: on a CPU by the clock, on a GPU by events, which wait behind each other while the host launches all of them.

    after: another watch, which sees the same, outside of what is timed.
    """

    def __init__(self, on_gpu: bool, after: Watch) -> None:
        self._on_gpu, self._after = on_gpu, after
        self._calls: collections.deque[tuple[Any, list[tuple[int, Any, Any]]]] = collections.deque(maxlen=CALLS)
        self._thread = _Spans()
        self._host = 1e-3

    def call(self, run: Call, inputs: list[Any]) -> tuple[Any, ...]:
        own = self._thread
        around, own.known = own.known, []
        if self._on_gpu:
            _torch.keep_busy(int(_CYCLES * min(2e3 * self._host, _LONGEST_WAIT)))
        begun, started = self._now(), time.perf_counter()
        try:
            result = self._after.call(run, inputs)
            self._host = time.perf_counter() - started
            self._calls.append(((begun, self._now()), own.known))
            return result
        finally:
            own.known = around

    def line_begins(self, line: int) -> None:
        self._after.line_begins(line)
        self._thread.begun = self._now()

    def line_ends(self, line: int) -> None:
        ended = self._now()
        self._thread.known.append((line, self._thread.begun, ended))
        self._after.line_ends(line)

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @property
    def calls(self) -> int:
        """How many are known."""
        return len(self._calls)

    def microseconds(self, of: Callable[[list[float]], float] = statistics.median) -> tuple[float, dict[int, float]]:
        """Of a call, and of each of its lines: medians, or what `of` makes of all of them, without the first call where there are others."""
        if self._on_gpu:
            torch.cuda.synchronize()
        known = list(self._calls)[1 if len(self._calls) > 1 else 0 :]
        lines: dict[int, list[float]] = {}
        for _, spans in known:
            for line, begun, ended in spans:
                lines.setdefault(line, []).append(self._between(begun, ended))
        whole = of([self._between(*ends) for ends, _ in known]) if known else 0.0
        return whole, {line: of(found) for line, found in lines.items()}

    def _between(self, begun: Any, ended: Any) -> float:
        return 1e3 * begun.elapsed_time(ended) if self._on_gpu else 1e-3 * (ended - begun)
