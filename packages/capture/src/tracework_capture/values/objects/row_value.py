"""Callables that a row of a table stands for, and functions of C that have none."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from ...sources import Attr, Const, Source
from ..protocol.binding import C_METHODS, BoundBuiltin, call_c_method
from ..protocol.calls import Handler, function_name
from ..protocol.constant import ConstantValue, fold
from ..protocol.known_function import KnownFunction
from ..protocol.pure import is_pure
from ..protocol.registry import Registry
from ..protocol.value import Frame, Value

NO_OWNERS = (types.ModuleType, type, type(None))
"""What a C function may be bound to without being a method: others are made anew by each look-up, and wait on the stack for their
arguments, over a break."""


BOUND_TYPES = (types.BuiltinMethodType, types.MethodWrapperType)


def is_bound(obj: Any) -> bool:
    """Whether it is a method of its owner; functions that pybind11 makes are bound to a record that has no such attribute."""
    if not isinstance(obj, BOUND_TYPES) or isinstance(obj.__self__, NO_OWNERS):
        return False
    return hasattr(type(obj.__self__), obj.__name__)


OVERRIDES: Registry[str, Callable[[Frame, KnownFunction, Sequence[Value], dict[str, Value]], Value | None]] = Registry(
    "OVERRIDES"
)
"""What storeys above ask before a call of a function that has a row, by a name of theirs: the result, or None where they leave it alone."""
CALLS_WITHOUT_ROW: Registry[str, Callable[[Frame, Any, Sequence[Value], dict[str, Value]], Value | None]] = Registry(
    "CALLS_WITHOUT_ROW"
)
"""What storeys above know of calls of functions of C that have no row, by a name of theirs: the result, or None where it must break the graph."""


class RowValue(KnownFunction):
    """A function that a table answers for."""

    row: Handler

    def __init__(self, fn: Any, row: Handler, source: Source | None = None) -> None:
        super().__init__(fn, source)
        self.row = row

    def describe(self) -> str:
        return getattr(self.fn, "__qualname__", repr(self.fn))

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__call__":
            return BoundBuiltin(self, name)
        try:
            found = getattr(self.fn, name)
        except AttributeError as error:
            return frame.raise_new(AttributeError, *error.args)
        if isinstance(found, C_METHODS):
            return frame.break_graph("attribute_unknown", f"{self.describe()}.{name}")
        if getattr(self.fn, name) is found:
            return frame.wrap(found, Attr(Const(self.fn), name))
        return frame.constant(found)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        """Bound ones are equal where they are the same function of the same object."""
        if isinstance(self.fn, BOUND_TYPES) and isinstance(other, RowValue) and op in ("==", "!="):
            return ConstantValue((self.fn == other.fn) == (op == "=="))
        return None  # others are, as any object, equal to themselves alone

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.call(frame, args, kwargs) if name == "__call__" else super().call_method(frame, name, args, kwargs)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        for override in OVERRIDES.values():
            found = override(frame, self, args, kwargs)
            if found is not None:
                return found
        return self.row(frame, args, kwargs)


class CFunctionValue(RowValue):
    """A C function without a row: methods act on their first argument, pure ones are folded, the rest breaks."""

    def __init__(self, fn: Any, source: Source | None = None) -> None:
        KnownFunction.__init__(self, fn, source)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        fn = self.fn
        if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType) and args:
            return call_c_method(frame, fn, args[0], fn.__name__, list(args[1:]), kwargs)
        if isinstance(getattr(fn, "__self__", None), type) or is_bound(fn):
            owner = fn.__self__
            return frame.wrap(owner, Const(owner)).call_method(frame, fn.__name__, list(args), kwargs)
        if is_pure(fn):
            return fold(frame, fn, args, kwargs)
        for calls in CALLS_WITHOUT_ROW.values():
            found = calls(frame, fn, args, kwargs)
            if found is not None:
                return found
        return frame.break_graph("call_unknown", function_name(fn))
