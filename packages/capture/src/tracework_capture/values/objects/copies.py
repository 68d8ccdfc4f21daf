"""What copy.copy and copy.deepcopy make of an instance of a class of the program."""

from __future__ import annotations

import copyreg
import types
from collections.abc import Callable
from typing import Any

import torch

from ..plain.instance_dict import InstanceDictValue
from ..plain.mapping import DictValue
from ..plain.rows_copies import COPIES
from ..plain.sequence import ListValue
from ..protocol.binding import class_value, native_base, python_new
from ..protocol.iteration import iterate_all
from ..protocol.operators import is_atomic
from ..protocol.properties import function_value
from ..protocol.value import Frame, Value
from .construction import new_object
from .instance import ObjectValue

OWN_COPIES = ("__copy__", "__deepcopy__", "__getnewargs__", "__getnewargs_ex__", "__setstate__", "__slots__")
LIKE_OBJECT = ("__reduce__", "__reduce_ex__", *(("__getstate__",) if hasattr(object, "__getstate__") else ()))


REDUCED_AS_OBJECTS = (object, int, float, str, bytes, complex, list, dict)
"""Built-in classes of whose subclasses an instance is copied as one of a class of the program: __new__ with the number or text, fields, items."""


def copied_its_own_way(cls: type) -> bool:
    """Whether a copy of an instance is more than a new one with the same fields and items."""
    native = native_base(cls)
    if native not in REDUCED_AS_OBJECTS or cls in copyreg.dispatch_table or not cls.__dictoffset__:
        return True
    names = (*OWN_COPIES, *LIKE_OBJECT)
    own = [n for n in names if getattr(cls, n, None) is not getattr(native, n, None)]
    return bool(own) or hasattr(cls, "__getattr__") or not hasattr(object, "__getstate__") and hasattr(cls, "__getstate__")


def has_a_state(cls: type) -> bool:
    """Whether an instance is copied by __getstate__ and __setstate__ of Python, in the way of nn.Module."""
    own = set(OWN_COPIES) - {"__setstate__"}
    others = [n for n in own if hasattr(cls, n)] + [
        n for n in ("__reduce__", "__reduce_ex__") if getattr(cls, n) is not getattr(object, n)
    ]
    found = getattr(cls, "__getattr__", torch.nn.Module.__getattr__) is not torch.nn.Module.__getattr__
    states = (getattr(cls, n, None) for n in ("__getstate__", "__setstate__"))
    if others or found or cls in copyreg.dispatch_table or python_new(cls) is not None:
        return False
    return all(isinstance(state, types.FunctionType) for state in states)


def new_like(frame: Frame, value: ObjectValue) -> Any:
    """cls.__new__(cls), with the number or the text that the instance `value` of cls is one of."""
    given = [class_value(frame, value.cls), *([value.part] if value.part is not None and is_atomic(value.part) else [])]
    new = python_new(value.cls)
    if new is None:
        return ObjectValue(value.cls) if value.part is None else new_object(frame, given, {})
    made = function_value(frame, new).call(frame, given, {})
    if type(made) is not ObjectValue or made.cls is not value.cls:
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}, whose __new__ gives something else")
    return made


def copy_by_state(frame: Frame, value: ObjectValue, copy_part: Callable[[Value], Value]) -> Value:
    """A new instance that is given the state of the other one, as __getstate__ and __setstate__ have it."""
    state, made = value.call_method(frame, "__getstate__", [], {}), ObjectValue(value.cls)
    made.call_method(frame, "__setstate__", [copy_part(state)], {})
    return made


def copy_object(frame: Frame, value: ObjectValue, copy_part: Callable[[Value], Value]) -> Value:
    """A new instance with the same fields, number or text, and items."""
    if value.part is None and has_a_state(value.cls):
        return copy_by_state(frame, value, copy_part)
    if copied_its_own_way(value.cls):
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}")
    made = new_like(frame, value)
    fields: Any = InstanceDictValue(value)
    if value.cls.__getattribute__ is not vars(object)["__getattribute__"]:  # copy asks it for both dicts
        fields = value.getattr(frame, "__dict__")
        own = isinstance(fields, InstanceDictValue) and fields.owner is value
        if not own or not isinstance(made.getattr(frame, "__dict__"), InstanceDictValue):
            return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}, whose __dict__ is not its own")
    for key, found in fields.snapshot(frame).all_items(frame):
        made.set_field(frame, key.constant(), copy_part(found))
    for item in iterate_all(frame, value) if isinstance(value.part, ListValue) else ():
        made.call_method(frame, "append", [copy_part(item)], {})
    for pair in iterate_all(frame, value.call_method(frame, "items", [], {})) if isinstance(value.part, DictValue) else ():
        made.setitem(frame, *map(copy_part, pair.unpack(frame)))
    copied: Value = made
    return copied


COPIES[ObjectValue] = copy_object
