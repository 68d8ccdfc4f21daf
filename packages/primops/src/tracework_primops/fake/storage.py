"""Which fakes share memory: one FakeStorage per storage, with a version that every write increases."""

from __future__ import annotations

import itertools

_NUMBERS = itertools.count()


class FakeStorage:
    """The memory behind one or more fakes.

    `id` is unique in the process, `version` counts writes, `real` is true when it stands for the storage of a real
    tensor (an input) rather than for memory allocated while tracing.
    """

    version = 0  # on the class, because most storages are made, read and dropped without ever being written or printed
    real = False
    _id: int | None = None

    @property
    def id(self) -> int:
        """Given when first asked for."""
        if self._id is None:
            self._id = next(_NUMBERS)
        return self._id

    def __repr__(self) -> str:
        return f"FakeStorage({self.id}, version {self.version})"
