"""NumPy's functions that are written in Python: traced from the functions that have rows, as the program's own code is."""

from __future__ import annotations

import math
import types
from typing import Any

from ...arrays import numpy
from ...sources import Const, Source
from ..objects.row_value import RowValue
from ..plain.sequence import TupleValue
from ..protocol.calls import Handler, call
from ..protocol.constant import ConstantValue, fold_plain
from ..protocol.value import Frame, Value
from ..protocol.wraps import wraps
from ..torch.existing import wrap_builtin
from .breaks import refuse
from .operands import as_array, computed_now


def traced_row(program: Any) -> Handler:
    """The row of what NumPy dispatches to `program`. What is known already is computed now."""

    def trace(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.wrap(program, Const(program, program.__qualname__)).call(frame, args, kwargs)

    def computes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if frame.services.call_policy(program, program.__module__)[0] == "break":
            return trace(frame, args, kwargs)
        if any(callable(a.constant()) for a in (*args, *kwargs.values()) if a.is_constant()):
            return trace(frame, args, kwargs)
        return computed_now(frame, program, args, kwargs) or trace(frame, args, kwargs)

    return computes


@wraps(type(numpy.prod))
def wrap_dispatcher(frame: Frame, obj: Any, source: Source) -> Value:
    """One of NumPy's functions that ask their arguments for __array_function__."""
    value = wrap_builtin(frame, obj, source)
    program = obj._implementation
    traced = getattr(value, "row", None) is None and type(program) is types.FunctionType
    return RowValue(obj, traced_row(program), source) if traced else value


class Broadcast(Value):
    """numpy.broadcast(*arrays), of which the sizes are asked for."""

    description = "a numpy.broadcast"
    cls = numpy.broadcast

    def __init__(self, sizes: tuple[Any, ...]) -> None:
        super().__init__(None)
        self.sizes = sizes

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "shape":
            return TupleValue([ConstantValue(n) for n in self.sizes])
        if name in ("ndim", "nd", "size"):
            return ConstantValue(math.prod(self.sizes) if name == "size" else len(self.sizes))
        return refuse(frame, f"{name} of a numpy.broadcast")


@call(numpy.broadcast)
def broadcast(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    arrays = [as_array(frame, a) for a in args]
    if kwargs or any(type(n) is not int for a in arrays for n in a.example.shape):
        return refuse(frame, "numpy.broadcast of arrays with open sizes")
    return Broadcast(fold_plain(frame, numpy.broadcast_shapes, *[tuple(a.example.shape) for a in arrays]))
