"""Tensors without data: sizes, strides, dtype, device and storage identity, over which autograd runs as usual."""

from . import composites, special
from .dispatch import ATEN_META, SPECIAL
from .mode import FakeMode
from .storage import FakeStorage
from .tensor import FakeTensor

__all__ = ["ATEN_META", "SPECIAL", "FakeMode", "FakeStorage", "FakeTensor", "composites", "special"]
