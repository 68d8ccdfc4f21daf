"""What object, and types.SimpleNamespace, define for all instances: name -> method(frame, self, *args)."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ...guards.classes import lookup_class
from ..plain.sequence import NONE
from ..protocol.binding import OF_OBJECT, python_new
from ..protocol.calls import methods
from ..protocol.constant import ConstantValue, attribute_name, force_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.value import Frame, Value
    from .instance import ObjectValue


def object_setattr(frame: Frame, self: ObjectValue, name: Value, value: Value) -> Value:
    self.plain_setattr(frame, attribute_name(frame, name), value)
    return NONE


def object_delattr(frame: Frame, self: ObjectValue, name: Value) -> Value:
    self.plain_delattr(frame, attribute_name(frame, name))
    return NONE


def object_init(frame: Frame, self: ObjectValue, *args: Value, **kwargs: Value) -> Value:
    if (args or kwargs) and (lookup_class(self.cls, "__init__")[0] is not object.__init__ or python_new(self.cls) is None):
        frame.break_graph("call_unknown", f"object.__init__ of {self.cls.__name__} with arguments")
    return NONE


def object_init_subclass(frame: Frame, self: ObjectValue, *args: Value, **kwargs: Value) -> Value:
    return NONE


def default_repr(frame: Frame, self: Value) -> Value:
    return frame.break_graph("value_not_known", f"text of {self.describe()} shows an address")


def identical(frame: Frame, self: Value, other: Value) -> Value:
    return ConstantValue(True if self is other else NotImplemented)


def opposite(frame: Frame, self: Value, other: Value) -> Value:
    """Of what its class says of equality."""
    if lookup_class(self.python_type(), "__eq__")[1] is object:
        return ConstantValue(False if self is other else NotImplemented)
    equal = self.compare(frame, "==", other)
    return ConstantValue(NotImplemented if equal is None else not equal.truth(frame))


def namespace_comparison(op: str) -> Callable[[Frame, Value, Value], Value]:
    """types.SimpleNamespace.__eq__ and __ne__: with another namespace, of what they hold."""

    def compare(frame: Frame, self: Value, other: Value) -> Value:
        if not issubclass(other.python_type(), types.SimpleNamespace):
            return ConstantValue(NotImplemented)
        found = self.getattr(frame, "__dict__").compare(frame, op, other.getattr(frame, "__dict__"))
        return ConstantValue(NotImplemented) if found is None else found

    return compare


methods(types.SimpleNamespace, {"__eq__": namespace_comparison("=="), "__ne__": namespace_comparison("!=")})
OF_OBJECT.add({"__eq__": identical, "__ne__": opposite, "__repr__": default_repr})
methods(
    object,
    {
        "__setattr__": object_setattr,
        "__delattr__": object_delattr,
        "__init__": object_init,
        "__getattribute__": lambda frame, self, name: self.plain_getattr(frame, force_plain(frame, name), use_hook=False),
        "__init_subclass__": object_init_subclass,
        **OF_OBJECT,
        "__str__": default_repr,
    },
)
