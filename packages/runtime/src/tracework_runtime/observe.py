"""Counters and timers for loads, builds, launches and cache hits.

One process-wide table of plain numbers, written by the runtime and read by reports and tests.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

__all__ = ["COUNTERS", "Observer", "add", "counters", "no_observer", "reset_counters", "timed"]

Observer = Callable[[str, object], None]
COUNTERS: defaultdict[str, float] = defaultdict(float)


def no_observer(stage: str, printable: object) -> None:
    """The observer that looks away."""


def add(name: str, amount: float = 1) -> None:
    """Add to one counter."""
    COUNTERS[name] += amount


def counters() -> dict[str, float]:
    """A copy of all counters; seconds end in `_s`."""
    return dict(COUNTERS)


def reset_counters() -> None:
    """Start counting from zero."""
    COUNTERS.clear()


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Add the seconds of a with-block to `name_s` and one to `name`."""
    start = time.perf_counter()
    try:
        yield
    finally:
        COUNTERS[name + "_s"] += time.perf_counter() - start
        COUNTERS[name] += 1
