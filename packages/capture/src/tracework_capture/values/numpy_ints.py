"""Ints of NumPy that the program was given and that change from call to call."""

from __future__ import annotations

import numpy

from ..formulas import INT_BITS
from ..graph.inputs import open_int
from ..sources import ComputedInt
from .constant import NUMPY_NUMBERS
from .floats import settled
from .open_constant import OpenConstant
from .symint import size_value
from .tensor import TensorValue

NUMPY_INTS = frozenset(kind for kind in NUMPY_NUMBERS if issubclass(kind, numpy.integer))


class NumpyInt(OpenConstant):
    """Open in arithmetic with tensors, which take it as any int, and where the program makes an int of it (`size`) or a text; NumPy's own
    arithmetic and all else needs the number."""

    def __init__(self, frame, number, size, source):
        super().__init__(number, lambda: frame.guard("CONSTANT", source, number), source)
        self.size = size

    def describe(self):
        return "an int of NumPy that changes"

    @property
    def hint(self):
        """What it is in this call."""
        return self.obj

    def specialise(self, frame):
        """The number of this call; the entry then holds for it only."""
        return self.known().constant()

    def binary(self, frame, op, other, reverse=False):
        if isinstance(other, TensorValue) and self.settled is None:
            return None
        return self.known().binary(frame, op, settled(frame, other), reverse)

    def compare(self, frame, op, other):
        if isinstance(other, TensorValue) and self.settled is None:
            return None
        return self.known().compare(frame, op, settled(frame, other))

    def call_method(self, frame, name, args, kwargs):
        if name in ("__int__", "__index__", "item") and not args and not kwargs and self.settled is None:
            return self.size
        return self.known().call_method(frame, name, args, kwargs)

    def as_operand(self, frame, tensors):
        """What stands for it in arithmetic with tensors."""
        return self.size if self.settled is None else self.known()

    def as_graph_arg(self, frame):
        return self.size.as_graph_arg(frame) if self.settled is None else self.known().as_graph_arg(frame)

    def reload(self, emit):
        return emit.const(self.obj) if self.source is None else emit.source(self.source)


def changing_numpy_int(frame, number, source):
    """The value of an int that had another value in an earlier capture; None when it stays a constant."""
    root = frame.root
    if root.symbols is None or root.options.dynamic is False or not root.changes(source, number):
        return None
    if int(number).bit_length() > INT_BITS:
        return None
    frame.guard("TYPE", source, type(number))
    size = size_value(frame, open_int(root, int(number), ComputedInt(source, "int(n)", "n")))
    return NumpyInt(frame, number, size, source)
