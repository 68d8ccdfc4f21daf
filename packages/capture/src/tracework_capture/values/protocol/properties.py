"""Functions that descriptors of the program's classes hold, and properties: those are traced; what they refuse is refused in their own words."""

from __future__ import annotations

from typing import Any

from ...sources import Attr, Const, Source
from .constant import raise_python
from .value import Frame, Value

_FUNCTIONS = {"__get__": "fget", "__set__": "fset", "__delete__": "fdel"}


def function_value(frame: Frame, function: Any, source: Source | None = None) -> Value:
    """The value of a function found on a class: classes are known, so it is, too."""
    return frame.wrap(
        function, source if source is not None else Const(function, getattr(function, "__qualname__", repr(function)))
    )


def held_function(frame: Frame, static: Any, attribute: str = "__func__") -> Any:
    """The function in a property, a staticmethod or a classmethod, whose __init__ may be called again. Guarded."""
    found = getattr(static, attribute)
    frame.guard("IDENTITY", Attr(Const(static, type(static).__name__), attribute), found)
    return found


def is_property(static: Any, operation: str) -> bool:
    """Whether a class attribute is a property, or of a class derived from it that leaves the operation as it is."""
    return isinstance(static, property) and getattr(type(static), operation) is getattr(property, operation)


def use_property(frame: Frame, static: Any, operation: str, self: Value, cls: type, *args: Value) -> Value:
    """Reads, writes or deletes an attribute of a value of the class `cls` through the property."""
    function = held_function(frame, static, _FUNCTIONS[operation])
    if function is not None:
        return function_value(frame, function).call(frame, [self, *args], {})
    namesake = type(cls.__name__, (), {"__qualname__": cls.__qualname__})()  # all that the message says of the object
    try:
        found: Value = getattr(property, operation)(static, namesake, *[None] * len(args))
        return found
    except AttributeError as error:
        return raise_python(frame, error)
