"""Those who watch all of capture in this process, whoever compiles: graphs, breaks, frames that run plainly, recompiles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Watcher = Callable[[str, Any], None]
_watchers: list[Watcher] = []


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """In the block `watcher` is called, by any thread, with "captured" and a CapturedGraph, "break" and a Break, "plain" and a PlainFrame,
    "recompile" and a Recompile, "stored" and a Stored, "uncompiled" and an Uncompiled."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers[:] = [each for each in _watchers if each is not watcher]


def is_watched() -> bool:
    """Whether anybody watches."""
    return bool(_watchers)


def tell(event: str, what: Any) -> None:
    """Tells those who watch."""
    for each in _watchers:
        each(event, what)
