"""NumPy's functions that are written in Python: traced from the functions that have rows, as the program's own code is."""

from __future__ import annotations

import math
import types
from typing import TYPE_CHECKING, Any

from ...arrays import CONVERTER, numpy
from ...sources import Const, Source
from ..objects.row_value import RowValue
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import call
from ..protocol.constant import ConstantValue, fold_plain, plain
from ..protocol.value import Value
from ..protocol.wraps import wraps
from ..torch.callables import wrap_builtin
from .array import ArrayValue
from .breaks import refuse
from .operands import as_array, computed_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocol.calls import Handler
    from ..protocol.value import Frame


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


class Converter(Value):
    """NumPy's own _array_converter, which its functions put their arguments through."""

    def __init__(self, arrays: Sequence[ArrayValue], single: list[Any]) -> None:
        super().__init__(None)
        self.arrays, self.single = arrays, single

    def describe(self) -> str:
        return "an _array_converter"

    def python_type(self) -> type:
        kind: type = CONVERTER
        return kind

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "scalar_input":
            return TupleValue([ConstantValue(single) for single in self.single])
        return BoundBuiltin(self, name)

    def getitem(self, frame: Frame, key: Value) -> Value:
        return TupleValue(self.arrays).getitem(frame, key)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = {k: plain(v) for k, v in kwargs.items()}
        if name == "as_arrays" and not args and given.pop("pyscalars", "convert") == "convert" and given.keys() <= {"subok"}:
            return TupleValue(self.arrays)
        if name == "wrap" and len(args) == 1 and given.keys() <= {"to_scalar"} and isinstance(args[0], ArrayValue):
            to_scalar = given.get("to_scalar")
            number = not args[0].example.ndim and (all(self.single) if to_scalar is None else to_scalar)
            return ArrayValue(args[0].tensor, scalar=True) if number else args[0]
        return refuse(frame, f"_array_converter.{name} with these arguments")


@call(CONVERTER)
def converter(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """_array_converter(*arrays)"""
    if kwargs:
        return refuse(frame, "_array_converter with these arguments")
    arrays = [as_array(frame, a) for a in args]
    return Converter(arrays, [not isinstance(a, SequenceValue) and (not isinstance(a, ArrayValue) or a.scalar) for a in args])


class Broadcast(Value):
    """numpy.broadcast(*arrays), of which the sizes are asked for."""

    cls = numpy.broadcast

    def __init__(self, sizes: tuple[Any, ...]) -> None:
        super().__init__(None)
        self.sizes = sizes

    def describe(self) -> str:
        return "a numpy.broadcast"

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
