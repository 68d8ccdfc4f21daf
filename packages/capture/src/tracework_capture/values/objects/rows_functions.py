"""functools.partial, update_wrapper and wraps; types.MethodType and SimpleNamespace."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from ..plain.instance_dict import InstanceDictValue
from ..plain.iterators import PartialBuiltin
from ..protocol.calls import calls
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.value import Frame, SymbolicRaise, Value
from .construction import init_namespace
from .function import BoundMethodValue, FunctionValue, NewFunctionValue
from .instance import ObjectValue
from .partial import partial_, partial_call


def attributes_set(frame: Frame, function: Value) -> list[tuple[str, Value]]:
    """(name, value) of what the program set on a function, on the function of a method, or on an object that is called."""
    function = function.function if isinstance(function, BoundMethodValue) else function
    if isinstance(function, ObjectValue):
        held = InstanceDictValue(function).snapshot(frame).all_items(frame) if hasattr(function.cls, "__dict__") else []
        return [(name.constant(), value) for name, value in held]
    if not isinstance(function, FunctionValue):
        kind = function.python_type()
        if kind is types.FunctionType and not vars(function.real()) or not kind.__dictoffset__:
            return []
        # of a class, or a classmethod, all that is in its __dict__ would be copied
        return frame.break_graph("builtin_unsupported", f"functools.update_wrapper from a {kind.__name__}")
    names = function.attributes if isinstance(function, NewFunctionValue) else vars(function.function)
    return [(name, function.getattr(frame, name)) for name in names]


def arguments_of(frame: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """The arguments of a call of a Python function by their names, without the defaults."""
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as error:
        return frame.break_graph("builtin_unsupported", f"functools.{function.__name__}: {error}")


def update_wrapper(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """functools.update_wrapper of a function or an object of a class of the program."""
    given = arguments_of(frame, functools.update_wrapper, args, kwargs)
    wrapper, wrapped = given["wrapper"], given["wrapped"]
    assigned = force_plain(frame, given["assigned"]) if "assigned" in given else functools.WRAPPER_ASSIGNMENTS
    updated = force_plain(frame, given["updated"]) if "updated" in given else functools.WRAPPER_UPDATES
    if not isinstance(wrapper, (FunctionValue, ObjectValue)) or {*updated} - {"__dict__"}:
        return frame.break_graph("builtin_unsupported", f"functools.update_wrapper of {wrapper.describe()}")
    for name in assigned:
        try:
            found = wrapped.getattr(frame, name)
        except SymbolicRaise as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
            continue  # a partial has no name
        wrapper.setattr(frame, name, found)
    for name, value in attributes_set(frame, wrapped) if updated else ():
        if isinstance(wrapper, ObjectValue):  # past its __setattr__
            wrapper.getattr(frame, "__dict__").setitem(frame, ConstantValue(name), value)
        else:
            wrapper.setattr(frame, name, value)
    wrapper.setattr(frame, "__wrapped__", wrapped)
    return wrapper


def wraps_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """functools.wraps"""
    given = arguments_of(frame, functools.wraps, args, kwargs)
    return PartialBuiltin(functools.partial, lambda frame, inner, others: update_wrapper(frame, inner, given | others))


def method_type(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return BoundMethodValue(args[0], args[1])


def namespace(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = ObjectValue(types.SimpleNamespace)
    init_namespace(frame, made, args, kwargs)
    return made


calls(
    {
        functools.partial: partial_,
        functools.partial.__call__: partial_call,
        functools.update_wrapper: update_wrapper,
        functools.wraps: wraps_,
        types.MethodType: method_type,
        types.SimpleNamespace: namespace,
    }
)
