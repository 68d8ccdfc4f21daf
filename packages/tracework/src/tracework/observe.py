"""Observers: functions of (stage name, printable product) that see what each stage makes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

Observe = Callable[[str, Any], None]


class Watcher(Protocol):
    """Sees what every compile() call of the process makes, and may put itself between."""

    def product(self, stage: str, product: Any) -> None:
        """As an Observe; and with "graph" and (functional graph, its GraphSpec) before a graph is compiled."""

    def loaded(self, compiled: Any) -> Any:
        """What runs in the place of a loaded graph; the same where it is left alone."""


_watchers: list[Watcher] = []


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """`watcher` is told in the block, by any thread."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers[:] = [each for each in _watchers if each is not watcher]


def tell(stage: str, product: Any) -> None:
    """Tells the watchers."""
    for watcher in _watchers:
        watcher.product(stage, product)


def instead_of(compiled: Any) -> Any:
    """What the watchers want to run in the place of a loaded graph."""
    for watcher in _watchers:
        compiled = watcher.loaded(compiled)
    return compiled


def nothing(stage: str, product: Any) -> None:
    """The observer that does nothing."""
