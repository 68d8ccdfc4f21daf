"""What arrays give as attributes of theirs: their flags, and their items one after the other."""

from __future__ import annotations

import torch

from ...arrays import numpy
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.value import Emitter, Frame, Value
from .array import ARRAY_ATTRIBUTES, ArrayValue
from .breaks import refuse
from .layouts import is_in_c_order, is_in_fortran_order
from .nodes import call, call_method

FLAGS = {
    "contiguous": is_in_c_order,
    "c_contiguous": is_in_c_order,
    "f_contiguous": is_in_fortran_order,
    "fortran": lambda array: is_in_fortran_order(array) and not is_in_c_order(array),
    "fnc": lambda array: is_in_fortran_order(array) and not is_in_c_order(array),
    "forc": lambda array: is_in_fortran_order(array) or is_in_c_order(array),
    "writeable": lambda array: array.writeable and not array.scalar,
    "aligned": lambda array: True,
    "owndata": lambda array: array.base is None if array.source is None else None,
}
"""Name -> function of the array: the flag, None where it is not known."""
SHORT = {"C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "A": "aligned", "O": "owndata", "CONTIGUOUS": "c_contiguous"}


class Flags(Value):
    """array.flags"""

    cls = numpy._core.multiarray.flagsobj

    def __init__(self, array: ArrayValue) -> None:
        super().__init__(None)
        self.array = array

    def describe(self) -> str:
        return f"flags of a {self.array.describe()}"

    def reload(self, emit: Emitter) -> str:
        return f"{emit.load(self.array)}.flags"

    def flag(self, frame: Frame, name: str) -> Value:
        row = FLAGS.get(name)
        known = None if row is None else row(self.array)
        return refuse(frame, f"flags.{name} of an array") if known is None else ConstantValue(bool(known))

    def getattr(self, frame: Frame, name: str) -> Value:
        return self.flag(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        refuse(frame, f"flags.{name} of an array is set")

    def getitem(self, frame: Frame, key: Value) -> Value:
        name = force_plain(frame, key)
        return self.flag(frame, SHORT.get(name, str(name).lower()))


class Flat(Value):
    """array.flat: its items in C order."""

    cls = numpy.flatiter

    def __init__(self, array: ArrayValue) -> None:
        super().__init__(None)
        self.array = array

    def describe(self) -> str:
        return f"items of a {self.array.describe()}"

    def reload(self, emit: Emitter) -> str:
        return f"{emit.load(self.array)}.flat"

    def items(self, frame: Frame) -> ArrayValue:
        """A copy of them."""
        flat = call(frame, torch.reshape, self.array.tensor, (-1,))
        return ArrayValue(call_method(frame, "clone", flat))

    def length(self, frame: Frame) -> Value:
        return self.array.getattr(frame, "size")

    def getitem(self, frame: Frame, key: Value) -> Value:
        return self.items(frame).getitem(frame, key)

    def iterate(self, frame: Frame) -> Value:
        return self.items(frame).iterate(frame)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        if not is_in_c_order(self.array) or not self.array.writeable:
            refuse(frame, "flat of an array that is not in C order, or read-only, is written to")
        if isinstance(value, ArrayValue) and value.example.ndim:
            taken = ArrayValue(call(frame, torch.reshape, self.array.memory, (-1,))).getitem(frame, key)
            assert isinstance(taken, ArrayValue)
            if tuple(taken.example.shape) != tuple(value.example.shape):
                refuse(frame, "items of flat are set to another number of items")
        flat = ArrayValue(call(frame, torch.reshape, self.array.memory, (-1,)))
        flat.setitem(frame, key, value)


ARRAY_ATTRIBUTES.add({"flags": lambda frame, self: Flags(self), "flat": lambda frame, self: Flat(self)})
