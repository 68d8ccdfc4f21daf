"""Ranges and slices, and what an index means."""

from __future__ import annotations

import operator
from typing import Any

from ... import _C
from ..protocol.constant import ConstantValue, fold_literal, force_plain, plain
from ..protocol.native import NativeValue
from ..protocol.operators import compare_sequences
from ..protocol.value import Emitter, Frame, Value
from .iterators import ConstantIterator


class RangeValue(NativeValue):
    """A range; its bounds are plain ints (symbols were specialised when it was made) unless it ends at a symbol."""

    cls = range
    constructor_text = True

    def __init__(self, value: range, source: Any = None) -> None:
        super().__init__(source)
        self.value = value

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def length(self, frame: Frame) -> Value:
        return fold_literal(frame, len, self.value)

    def iterate(self, frame: Frame) -> Value:
        return ConstantIterator(self.value)

    def contains(self, frame: Frame, item: Value) -> Value:
        return ConstantValue(force_plain(frame, item) in self.value)

    def getitem(self, frame: Frame, key: Value) -> Value:
        if not isinstance(key, SliceValue):
            return fold_literal(frame, operator.getitem, self.value, force_plain(frame, key.as_place(frame)))
        bounds = slice(*(force_plain(frame, p.as_place(frame)) for p in key.parts))
        return fold_literal(frame, operator.getitem, self.value, bounds)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return ConstantValue(getattr(self.value, name))
        return super().getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("index", "count"):
            return fold_literal(frame, getattr(self.value, name), *[force_plain(frame, a) for a in args])
        return super().call_method(frame, name, args, kwargs)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if isinstance(other, RangeValue) and op in ("==", "!="):
            return ConstantValue((self.value == other.value) == (op == "=="))
        return None

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(range)}({self.value.start}, {self.value.stop}, {self.value.step})"


class SliceValue(NativeValue):
    """A slice whose parts may be anything."""

    cls = slice

    def __init__(self, start: Value, stop: Value, step: Value, source: Any = None) -> None:
        super().__init__(source)
        self.parts = (start, stop, step)

    def as_plain(self) -> Any:
        return slice(*(plain(p) for p in self.parts))

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return super().getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "indices":
            parts = [force_plain(frame, p) for p in self.parts]
            return fold_literal(frame, slice(*parts).indices, force_plain(frame, args[0]))
        return super().call_method(frame, name, args, kwargs)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        return compare_sequences(frame, op, [*self.parts], [*other.parts]) if isinstance(other, SliceValue) else None

    def as_graph_arg(self, frame: Frame) -> Any:
        return slice(*(p.as_graph_arg(frame) for p in self.parts))

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(slice)}({', '.join(emit.load(p) for p in self.parts)})"


def sequence_index(frame: Frame, key: Value, kind: str | None = None) -> Any:
    """A plain int or slice from a key value; `kind` is that of the sequence whose item is asked for."""
    if isinstance(key, SliceValue):
        bounds = slice(*(force_plain(frame, p.as_place(frame)) for p in key.parts))
        if not all(part is None or hasattr(type(part), "__index__") for part in (bounds.start, bounds.stop, bounds.step)):
            frame.raise_new(TypeError, "slice indices must be integers or None or have an __index__ method")
        if bounds.step == 0:
            frame.raise_new(ValueError, "slice step cannot be zero")
        return bounds
    index = force_plain(frame, key.as_place(frame))
    if hasattr(type(index), "__index__"):
        return operator.index(index)
    name = _C.type_name(type(index))
    if kind == "deque":
        return frame.raise_new(TypeError, f"sequence index must be integer, not '{name}'")
    if kind is not None:
        return frame.raise_new(TypeError, f"{kind} indices must be integers or slices, not {name}")
    return frame.raise_new(TypeError, f"'{name}' object cannot be interpreted as an integer")
