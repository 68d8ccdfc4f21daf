"""Which fakes share memory: one FakeStorage per storage, with a version that every write increases."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tensor import FakeTensor

_NUMBERS = itertools.count()


class FakeStorage:
    """The memory behind one or more fakes.

    `id` is unique in the process, `version` counts writes, `real` is true when it stands for the storage of a real
    tensor (an input) rather than for memory allocated while tracing.
    """

    __slots__ = ("id", "version", "real", "_views", "__weakref__")

    def __init__(self, real: bool = False):
        self.id = next(_NUMBERS)
        self.version = 0
        self.real = real
        self._views: list[weakref.ref] = []

    @property
    def views(self) -> list[FakeTensor]:
        """The living fakes over this memory, oldest first."""
        return [fake for reference in self._views if (fake := reference()) is not None]

    def __repr__(self) -> str:
        return f"FakeStorage({self.id}, version {self.version})"
