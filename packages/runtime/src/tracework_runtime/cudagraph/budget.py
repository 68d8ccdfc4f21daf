"""Budget: how much memory recordings may keep on a device, and which of them go first."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["BUDGET", "Budget"]

LEAST = 1 << 20
"""Bytes that each recording is taken to hold in any case: the driver keeps some for each kernel."""


class Held(Protocol):
    """What a budget counts."""

    bytes: int
    device: int

    @property
    def used(self) -> int:
        """When it was used last."""

    def drop(self) -> None:
        """Gives the memory back."""


class Budget:
    """All recordings that are alive, by device; the least recently used ones go first."""

    def __init__(self) -> None:
        self.arenas: dict[tuple[int, int], int] = {}
        """(device, stream) -> bytes that its recordings share."""
        self._held: dict[int, weakref.WeakSet[Any]] = {}

    def bytes(self, device: int) -> int:
        """What recordings on a device hold."""
        return sum(max(one.bytes, LEAST) for one in self._held.get(device, ())) + self._shared(device)

    def _shared(self, device: int) -> int:
        return sum(size for (where, _), size in list(self.arenas.items()) if where == device)

    def add(self, one: Held, limit: Callable[[], float], evicts: bool = True) -> bool:
        """Counts a new recording, and drops others until all are below `limit()` bytes; False where it alone is above.

        What recordings share counts with it. evicts: whether others go for it; else it is refused where they do not all fit.
        """
        most = limit()
        if not evicts and self.bytes(one.device) + max(one.bytes, LEAST) > most:
            return False
        if max(one.bytes, LEAST) + self._shared(one.device) > most:
            return False
        held = self._held.setdefault(one.device, weakref.WeakSet())
        for oldest in sorted(held, key=lambda other: other.used):
            if self.bytes(one.device) + max(one.bytes, LEAST) <= most:
                break
            self.remove(oldest)
            oldest.drop()
        held.add(one)
        return True

    def remove(self, one: Held) -> None:
        """It is dropped, or about to be."""
        self._held.get(one.device, weakref.WeakSet()).discard(one)


BUDGET = Budget()
