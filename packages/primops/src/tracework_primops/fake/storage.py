"""Which fakes share memory: one FakeStorage per storage, with a version that every write increases."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from ..errors import FakeTensorError
from ..spec import TensorSpec, storage_extent
from ..symbols import active
from ..symbols.expr import Size

_NUMBERS = itertools.count()


class FakeStorage:
    """The memory behind one or more fakes.

    `id` is unique in the process, `version` counts writes, `real` is true when it stands for the storage of a real
    tensor (an input) rather than for memory allocated while tracing. `first` is the spec of the tensor that it was allocated for,
    or of the first input that lies in it.
    """

    version = 0  # on the class, because most storages are made, read and dropped without ever being written or printed
    real = False
    first: TensorSpec | None = None
    _id: int | None = None

    @property
    def id(self) -> int:
        """Given when first asked for."""
        if self._id is None:
            self._id = next(_NUMBERS)
        return self._id

    def check_extent(self, dtype: torch.dtype, sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> None:
        """A view must lie within what its tensor was allocated for: a kernel would read or write beyond.

        Raises RuntimeError as eager does for memory allocated while tracing, and FakeTensorError beyond what is known of an input: how
        much memory is behind it may be another matter in the next call.
        """
        spec = self.first
        if spec is None:
            return
        needed = storage_extent(sizes, strides, offset) * dtype.itemsize
        there = storage_extent(spec.sizes, spec.strides, spec.offset) * spec.dtype.itemsize
        if needed.__class__ is int and there.__class__ is int:
            fits = needed <= there
        else:
            fits = any(active.equal(size, 0) for size in sizes) or active.decide("<=", needed, there)
        if not fits and self.real:
            raise FakeTensorError(
                f"as_strided: sizes {list(sizes)}, strides {list(strides)} and offset {offset} reach beyond the tensor that was passed in; "
                "pass the tensor that it is a part of"
            )
        if not fits:
            raise RuntimeError(
                f"setStorage: sizes {list(sizes)}, strides {list(strides)}, storage offset {offset}, and itemsize {dtype.itemsize} "
                f"requiring a storage size of {needed} are out of bounds for storage of size {there}"
            )

    def __repr__(self) -> str:
        return f"FakeStorage({self.id}, version {self.version})"
