"""What a class gives to its instances: functions bound, descriptors asked, methods of C known by name."""

from __future__ import annotations

import collections
import functools
import threading
import types
import typing
from collections.abc import Callable
from typing import Any

from ... import _C
from ..._torch.autograd import FunctionBase
from ...guards.classes import NO_ATTRIBUTE, Stored, defines, find, lookup_class
from ...sources import ClassAttr, Const
from .calls import CALLS
from .constant import ConstantValue, literal
from .keys import MethodKey
from .kinds import AbstractClass, AbstractException, AbstractInstance, AbstractSequence
from .make import make
from .properties import function_value, held_function, use_property
from .registry import Registry
from .value import Emitter, Frame, Value

DELETED: Any = object()


CONTAINERS = (collections.OrderedDict, collections.defaultdict, dict, list, set, frozenset, tuple, collections.deque)


ATOMS = (int, float, str, bytes)


WITHOUT_PART = (types.SimpleNamespace, FunctionBase)
"""Bases in C whose instances hold nothing, when they are made, but attributes."""


NATIVE_BASES = (*CONTAINERS, *ATOMS, *WITHOUT_PART)


ALIASES = tuple({type(alias) for alias in (typing.List, typing.Tuple, typing.Callable, typing.Optional, typing.List[int])})  # noqa: UP006


SLOT = types.MemberDescriptorType


LOOKUP_HOOKS = ("__getattr__", "__getattribute__")


GETSET = types.GetSetDescriptorType


FIELD = type(vars(collections.namedtuple("Record", "field"))["field"])


C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


BOUND_TYPES = {types.WrapperDescriptorType: types.MethodWrapperType, types.FunctionType: types.MethodType}
"""The type of what a class holds -> that of the same bound to an instance, where that is no method of C."""


LOCKS = (type(threading.Lock()), type(threading.RLock()))

FOREIGN_FUNCTIONS = {"cython_function_or_method", "fused_cython_function", "nb_func"}
"""Names of the types of functions that other languages' compilers make."""

OF_OBJECT: Registry[str, Callable[..., Value]] = Registry("OF_OBJECT")
"""Method -> what object does, of (frame, self, *args), with instances of classes that do it otherwise."""


def class_value(frame: Frame, cls: type) -> Value:
    """The value of a class that is known."""
    return frame.wrap(cls, Const(cls, cls.__name__))


def python_new(cls: type) -> Callable[..., Any] | None:
    """The Python function that makes the instances of a class, None where C does."""
    static, _ = lookup_class(cls, "__new__")
    if isinstance(static, staticmethod):
        return static.__func__
    return static if isinstance(static, types.FunctionType) else None  # set when the class was there


def is_data_descriptor(static: Any) -> bool:
    """Whether a class attribute goes before the instance dict."""
    return defines(type(static), "__set__", "__delete__")


def bind_class_attribute(frame: Frame, self: Value, cls: type, name: str) -> Value:
    """self.name where the class says what it is."""
    static, owner = lookup_class(cls, name)
    if static is NO_ATTRIBUTE:
        return frame.raise_new(AttributeError, f"'{_C.type_name(cls)}' object has no attribute '{name}'")
    return bind_static(frame, self, cls, owner, static, name)


def binding_kind(static: Any) -> type:
    """The type that says how a class attribute binds: a subclass of property that does not change how it is read is a property."""
    kind = type(static)
    for base in (property, classmethod, staticmethod):
        if issubclass(kind, base) and kind.__get__ is base.__get__:
            return base
    return kind


def bind_static(frame: Frame, self: Value, cls: type, owner: Any, static: Any, name: str) -> Value:
    """The descriptor protocol, on a class attribute that is known."""
    kind = binding_kind(static)
    if kind is types.FunctionType or kind is functools._lru_cache_wrapper:
        return make.bound_method(function_value(frame, static), self)
    if kind is property:
        return use_property(frame, static, "__get__", self, cls)
    if kind is classmethod and not isinstance(static.__func__, types.FunctionType):
        return frame.break_graph("attribute_unknown", f"{cls.__name__}.{name} is a class method of no function")
    if kind is classmethod:
        return make.bound_method(function_value(frame, held_function(frame, static)), class_value(frame, cls))
    if kind is staticmethod:
        return function_value(frame, held_function(frame, static))
    if isinstance(static, functools.cached_property) and isinstance(self, AbstractInstance):
        found = function_value(frame, static.func).call(frame, [self], {})
        self.set_field(frame, name, found)
        return found
    if isinstance(static, types.ClassMethodDescriptorType):
        return BoundBuiltin(class_value(frame, cls), name)
    if isinstance(static, C_METHODS):
        return BoundBuiltin(self, name, static)
    if kind is SLOT or kind is GETSET:
        read = self.native_attribute(frame, static, name)
        return frame.break_graph("attribute_unknown", f"{cls.__name__}.{name}") if read is None else read
    if kind is FIELD and isinstance(self.part, AbstractSequence):
        index, _ = static.__reduce__()[1]
        return self.part.item(frame, index)
    if is_modelled(static):
        return make.bound_method(frame.wrap(static, Const(static, name)), self)
    if defines(kind, "__get__"):
        getter, _ = lookup_class(kind, "__get__")
        if isinstance(getter, types.FunctionType):
            descriptor = frame.wrap(static, ClassAttr(Const(owner, owner.__name__), name))
            return function_value(frame, getter).call(frame, [descriptor, self, class_value(frame, cls)], {})
        return frame.break_graph("attribute_unknown", f"{cls.__name__}.{name} is a {kind.__name__}")
    return class_attribute(frame, static, owner, name)


def class_attribute(frame: Frame, static: Any, owner: Any, name: str) -> Value:
    """An attribute of a class that binds to nothing."""
    if type(static) is Stored:
        kept: Value = static.value
        return kept
    made: Any = frame.memory.new_classes.get(id(owner))
    if made is not None:
        return made.namespace[name] if name in made.namespace else literal(frame, static)
    return frame.wrap(static, ClassAttr(Const(owner, owner.__name__), name))


class BoundBuiltin(Value):
    """A method implemented in C, bound to its owner."""

    def __init__(self, owner: Value, name: str, descriptor: Any | None = None) -> None:
        super().__init__(None)
        self.owner = owner
        self.name = name
        self.descriptor = descriptor

    def python_type(self) -> type:
        found = self.descriptor or lookup_class(self.owner.python_type(), self.name)[0]
        return BOUND_TYPES.get(type(found), types.BuiltinMethodType)

    def describe(self) -> str:
        return f"{self.owner.describe()}.{self.name}"

    def hash_key(self, frame: Frame) -> Any:
        return MethodKey(self.owner, self.name)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstantValue(self.name)
        return frame.break_graph("attribute_unknown", f"{name} of {self.describe()}")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.descriptor is not None:
            return call_c_method(frame, self.descriptor, self.owner, self.name, args, kwargs)
        return self.owner.call_method(frame, self.name, args, kwargs)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.load(self.owner)}.{self.name}"


def call_c_method(frame: Frame, descriptor: Any, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Calls a method that C defines, such as dict.get or object.__setattr__, on a value."""
    base = getattr(descriptor, "__objclass__", object)
    native = native_base(owner.python_type())
    if base is dict is not native and name in native.__dict__ and issubclass(native, dict):
        return frame.break_graph("call_unknown", f"dict.{name} of a {native.__name__}, which has its own")
    if base is type and isinstance(owner, AbstractClass):
        return owner.of_type(frame, descriptor, name, args, kwargs)
    if not isinstance(owner, AbstractInstance):
        if lookup_class(owner.python_type(), name)[0] is not descriptor:
            if base is object and name in OF_OBJECT:
                return OF_OBJECT[name](frame, owner, *args)
            if issubclass(base, BaseException) and isinstance(owner, AbstractException):  # ValueError.__init__(self, text)
                return owner.call_native(frame, name, args, kwargs)
        return owner.call_method(frame, name, args, kwargs)
    row = CALLS.get(descriptor)
    if row is not None:
        return row.handler(frame, [owner, *args], kwargs)
    refuse_method(frame, owner, base, name)
    return owner.call_native(frame, name, args, kwargs)


def refuse_method(frame: Frame, owner: Value, base: type, name: str) -> None:
    """Breaks for a method that `base` defines in C for instances whose built-in part is not modelled: a str's, say."""
    if owner.part is None and base is not object and base not in NATIVE_BASES:
        frame.break_graph("lock" if base in LOCKS else "call_unknown", f"{base.__module__}.{base.__qualname__}.{name}")


def is_modelled(static: Any) -> bool:
    """Whether a method in a class is a function, of Cython's say, that has a row."""
    return type(static).__name__ in FOREIGN_FUNCTIONS and static in CALLS


def attribute_of_builtin(frame: Frame, value: Value, name: str) -> Value:
    """An attribute of a value whose type is a built-in container: its methods."""
    if name == "__class__":
        return class_value(frame, value.python_type())
    static, _ = lookup_class(value.python_type(), name)
    if isinstance(static, C_METHODS):
        return BoundBuiltin(value, name)
    if static is not NO_ATTRIBUTE:
        if name in ("__doc__", "__module__"):
            return literal(frame, static)
        return bind_class_attribute(frame, value, value.python_type(), name)
    return frame.raise_new(AttributeError, f"'{_C.type_name(value.python_type())}' object has no attribute '{name}'")


def is_callable(value: Value) -> bool:
    """callable(value)"""
    return isinstance(value, AbstractClass) or find(value.python_type(), "__call__")[1] is not None


def native_base(cls: type) -> type:
    """The built-in class whose __new__ makes instances of cls."""
    for base in cls.__mro__:
        if base in NATIVE_BASES or base is object:
            return base
    return object


make.provide(builtin_method=BoundBuiltin)
