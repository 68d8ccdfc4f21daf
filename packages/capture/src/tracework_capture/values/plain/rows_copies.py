"""copy.copy and copy.deepcopy: new containers, instances, modules and tensors from those that are there."""

from __future__ import annotations

import collections
import copy
import copyreg
import marshal
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..protocol.binding import class_value, native_base
from ..protocol.calls import breaks, calls
from ..protocol.kinds import AbstractClass, AbstractTensor
from ..protocol.registry import Registry
from ..protocol.value import Frame, Value, is_none
from .instance_dict import InstanceDictValue
from .mapping import DictValue, dict_of
from .sequence import NONE, SequenceValue, TupleValue
from .sets import SetValue

COPIES: Registry[type[Value], Callable[[Frame, Any, Callable[[Value], Value]], Value]] = Registry("COPIES")
"""Kind of values -> a new object like one of them, of (frame, value, copy_part), where its class does not say how it is copied."""
DEEP_COPIES: Registry[type[Value], Callable[[Frame, Any], Value]] = Registry("DEEP_COPIES")
"""Kind of values -> what copy.deepcopy makes of one, of (frame, value)."""
COPIED_AS_THEMSELVES = (types.FunctionType, types.BuiltinFunctionType, property, range, weakref.ref)
"""Beside constants and classes; so are tuples by copy.copy."""


def is_its_own_copy(value: Value) -> bool:
    return value.is_constant() or isinstance(value, AbstractClass) or value.python_type() in COPIED_AS_THEMSELVES


def copy_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0]
    if is_its_own_copy(value) or isinstance(value, TupleValue):
        return value

    if isinstance(value, InstanceDictValue):
        return value.snapshot(frame)
    hook = getattr(value.python_type(), "__copy__", None)
    if isinstance(hook, types.FunctionType):
        return value.call_method(frame, "__copy__", [], {})
    if value.python_type() in copyreg.dispatch_table:
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}")
    if isinstance(value, DictValue) and has_attributes(value):  # an OrderedDict has some, too
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()} with attributes")
    if isinstance(value, (SequenceValue, DictValue, SetValue)):
        return value.call_method(frame, "copy", [], {})
    return copied(frame, value, lambda part: part)


def copy_of_subclass(frame: Frame, value: Any) -> Value:
    """value.copy() of an instance of a subclass of OrderedDict, defaultdict or deque: the class is called."""
    native, cls = native_base(value.cls), class_value(frame, value.cls)
    if native is collections.OrderedDict:
        made = cls.call(frame, [], {})
        for key in value.part.unpack(frame):
            made.setitem(frame, key, value.getitem(frame, key))
        return made
    if native is collections.defaultdict:
        return cls.call(frame, [value.part.default_factory or NONE, value], {})
    maxlen = value.part.getattr(frame, "maxlen")
    return cls.call(frame, [value] if is_none(maxlen) else [value, maxlen], {})


def copied(frame: Frame, value: Value, copy_part: Callable[[Value], Value]) -> Value:
    """A new object like this one, by the rule for its kind; what is in it is copied by copy_part."""
    copy_one = COPIES.get(type(value))
    if copy_one is None:
        return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}")
    return copy_one(frame, value, copy_part)


def deepcopy_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) > 1 or kwargs:
        return frame.break_graph("builtin_unsupported", "copy.deepcopy with a memo")
    return deep(frame, args[0], {})


def deep(frame: Frame, value: Value, memo: dict[int, tuple[Any, Value]]) -> Value:
    """copy.deepcopy of simple structures; `memo` keeps what was shared shared, and alive what its keys are the ids of."""
    if id(value) not in memo:
        if isinstance(value, AbstractTensor) and value.python_type() is torch.Tensor:
            storage = value.example.storage
            if id(storage) in memo:
                return frame.break_graph("builtin_unsupported", "copy.deepcopy of tensors that share memory")
            memo[id(storage)] = storage, NONE
        memo[id(value)] = value, deep_unshared(frame, value, lambda v: deep(frame, v, memo))
    return memo[id(value)][1]


def deep_unshared(frame: Frame, value: Value, again: Callable[[Value], Value]) -> Value:
    """One level; `again` copies a part."""
    if is_its_own_copy(value):
        return value
    if value.python_type() in copyreg.dispatch_table:
        return frame.break_graph("builtin_unsupported", f"copy.deepcopy of {value.describe()}")
    if isinstance(value, AbstractTensor):
        return DEEP_COPIES[AbstractTensor](frame, value)
    if isinstance(value, SequenceValue):
        return value.sliced([again(i) for i in value.all_items(frame)])
    if isinstance(value, InstanceDictValue):
        value = value.snapshot(frame)
    if isinstance(value, DictValue) and value.cls in (dict, collections.OrderedDict) and not has_attributes(value):
        made = DictValue(cls=value.cls)
        for key, found in value.all_items(frame):
            made.store(frame, key, again(found))
        return made
    if isinstance(value, SetValue) and value.python_type() is set and all(v.is_constant() for v in value.unpack(frame)):
        return value.call_method(frame, "copy", [], {})
    hook = getattr(value.python_type(), "__deepcopy__", None)
    if isinstance(hook, types.FunctionType):
        return value.call_method(frame, "__deepcopy__", [dict_of(frame, [])], {})
    return copied(frame, value, again)


def has_attributes(value: Any) -> bool:
    return bool(value.attributes or getattr(value.obj, "__dict__", None))


SERIALIZING = (pickle.dumps, pickle.dump, pickle.loads, pickle.load, marshal.dumps, marshal.dump, marshal.loads, marshal.load)
calls({copy.copy: copy_, copy.deepcopy: deepcopy_})
breaks("serialization", memoryview)
for _fn in SERIALIZING:
    breaks("serialization", _fn, within=_fn.__module__.lstrip("_"))
