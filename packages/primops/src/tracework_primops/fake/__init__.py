"""Tensors without data: sizes, strides, dtype, device and storage identity, over which autograd runs as usual."""

from ..aten_meta import ATEN_META
from . import composites, special
from .dispatch import SPECIAL
from .mode import FakeMode
from .storage import FakeStorage
from .tensor import FakeTensor

__all__ = ["ATEN_META", "SPECIAL", "FakeMode", "FakeStorage", "FakeTensor", "composites", "special"]
