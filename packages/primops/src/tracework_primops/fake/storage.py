"""Which fakes share memory: one FakeStorage per storage, with a version that every write increases."""

from __future__ import annotations

import itertools
from typing import Any

from ..spec import storage_extent

_NUMBERS = itertools.count()


class FakeStorage:
    """The memory behind one or more fakes.

    `id` is unique in the process, `version` counts writes, `real` is true when it stands for the storage of a real
    tensor (an input) rather than for memory allocated while tracing. `bytes` is how much memory it is, None when not known.
    """

    version = 0  # on the class, because most storages are made, read and dropped without ever being written or printed
    real = False
    first: Any = None  # the spec of the tensor that it was allocated for
    real_bytes: int | None = None
    _id: int | None = None

    @property
    def id(self) -> int:
        """Given when first asked for."""
        if self._id is None:
            self._id = next(_NUMBERS)
        return self._id

    @property
    def bytes(self) -> int | None:
        """Of memory allocated while tracing: as much as its first tensor needs."""
        spec = self.first
        if spec is None or spec.is_symbolic:
            return self.real_bytes
        return storage_extent(spec.sizes, spec.strides, spec.offset) * spec.dtype.itemsize

    def __repr__(self) -> str:
        return f"FakeStorage({self.id}, version {self.version})"
