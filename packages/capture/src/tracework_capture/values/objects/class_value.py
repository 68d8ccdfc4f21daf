"""Class objects: their attributes, and what operations do by their metaclass."""

from __future__ import annotations

import collections
import collections.abc
import functools
import types
import weakref
from typing import Any

import torch
from torch.distributions.utils import lazy_property

from ...guards.classes import (
    DESCRIPTOR_METHODS,
    HEAP_TYPE,
    IMMUTABLE,
    NO_ATTRIBUTE,
    defines,
    is_descriptor,
    is_stored_to,
    lookup_class,
    store,
)
from ...sources import Attr, Const, Source
from ..plain.iterators import SequenceIterator
from ..plain.mapping import DictValue
from ..plain.sequence import NONE, ListValue
from ..protocol.arguments import call_row
from ..protocol.binding import C_METHODS, BoundBuiltin, bind_static, class_attribute, class_value, is_data_descriptor, python_new
from ..protocol.calls import CALLS, method_handler, methods
from ..protocol.constant import ConstantValue, attribute_name, fold, fold_plain, force_plain, implemented, literal
from ..protocol.finalizers import drop_reference
from ..protocol.kinds import AbstractClass, holds_own_instance
from ..protocol.properties import function_value, held_function
from ..protocol.pure import is_pure
from ..protocol.special_methods import COMPARE_SPECIAL, SPECIAL, UNARY_SPECIAL
from ..protocol.value import NEW, Frame, SymbolicRaise, Value
from .construction import construct, new_object
from .enum_member import has_members
from .function import BoundMethodValue

PLAIN_CLASS_ATTRIBUTES = (
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__mro__",
    "__bases__",
    "__base__",
    "__abstractmethods__",
)


def subclasses(frame: Frame, cls: type) -> Value:
    """cls.__subclasses__(), of which a guard sees whether there are others."""
    if type(cls).__subclasses__ is not type.__subclasses__ or not cls.__flags__ & HEAP_TYPE or frame.memory.new_classes:
        return frame.break_graph("call_unknown", "__subclasses__")
    existing: list[type] = type.__subclasses__(cls)
    found = [weakref.ref(each) for each in existing]

    def unchanged(now: type) -> bool:
        """it has the same subclasses"""
        each_now: list[type] = type.__subclasses__(now)
        return len(each_now) == len(found) and all(each is known() for each, known in zip(each_now, found))

    value = class_value(frame, cls)
    frame.guard("PREDICATE", value.source, unchanged)
    return ListValue([class_value(frame, each) for known in found if (each := known()) is not None])


methods(
    type,
    {
        "mro": lambda frame, cls: ListValue([class_value(frame, c) for c in fold_plain(frame, type.mro, cls)]),
        "__subclasses__": subclasses,
    },
)


OF_CLASSES = ("__repr__", "__str__", "__eq__", "__ne__", "__hash__", "__instancecheck__", "__subclasscheck__")
"""Methods of type that say something of a class, and change nothing."""


LIBRARY_DESCRIPTORS = {functools.cached_property, lazy_property}
"""Descriptors written in Python that do nothing that could be seen when they are read of the class."""

ALIASES = types.GenericAlias, vars(collections.abc.Callable)["__class_getitem__"].__func__
ALIASING_MODULES = ("typing", "typing_extensions")


def gives_alias(class_getitem: Any) -> bool:
    """Whether a class's `__class_getitem__` is C's or typing's, which give an alias of the class and its arguments and do no more."""
    function = class_getitem.__func__ if isinstance(class_getitem, classmethod) else class_getitem
    if isinstance(function, types.FunctionType):
        return function.__globals__.get("__name__") in ALIASING_MODULES
    return isinstance(function, (types.ClassMethodDescriptorType, types.BuiltinMethodType)) or any(function is a for a in ALIASES)


KNOWN_BY_TORCH = (torch.Tensor, torch.autograd.Function, tuple)
"""Classes whose attributes are read by other code than the program's and torch's in Python."""


class ClassValue(AbstractClass):
    """A class, known by identity."""

    def __init__(self, cls: Any, source: Source | None = None) -> None:
        super().__init__(source if source is not None else Const(cls, cls.__name__))
        self.cls: Any = cls

    def python_type(self) -> type:
        return type(self.cls)

    def real(self) -> Any:
        return self.cls

    as_plain = real

    def describe(self) -> str:
        return f"class {self.cls.__name__}"

    def hash_key(self, frame: Frame) -> Any:
        if lookup_class(type(self.cls), "__hash__")[0] is not object.__hash__:
            return frame.break_graph("unhashable_value", f"{self.describe()}, whose metaclass says how it is hashed")
        return self.cls

    def special(self, frame: Frame, name: str, args: list[Value]) -> Value | None:
        """type(cls).__name__(cls, *args) for what a metaclass defines in Python; None when only `type` has it, or nobody."""
        static, owner = lookup_class(type(self.cls), name)
        if owner in (type, object) or static is NO_ATTRIBUTE:
            return None
        if isinstance(static, types.FunctionType):
            return function_value(frame, static).call(frame, [self, *args], {})
        return frame.break_graph("operation_unknown", f"{name} of {self.describe()}, which is a {type(static).__name__}")

    def truth(self, frame: Frame) -> bool:
        if has_members(frame, self.cls, "__bool__"):
            return True
        for name, kind in (("__bool__", bool), ("__len__", int)):
            found = self.special(frame, name, [])
            if found is not None and found.python_type() is not kind:
                frame.break_graph("operation_unknown", f"{name} of {self.describe()} gives a {found.python_type().__name__}")
            if found is not None:
                return found.truth(frame)
        return True

    def same_object(self, other: Value) -> bool | None:
        try:
            return other.real() is self.cls
        except LookupError:
            return False

    def as_graph_arg(self, frame: Frame) -> Any:
        if (
            lookup_class(self.cls, "__torch_function__")[0] is not NO_ATTRIBUTE
        ):  # torch looks for it in the object that it is given
            return frame.break_graph("tensor_subclass", f"{self.describe()} as an argument of a function of torch")
        return self.cls

    def getattr(self, frame: Frame, name: str) -> Value:
        getter, _ = lookup_class(type(self.cls), "__getattribute__")
        if not isinstance(getter, types.FunctionType):
            return self.plain_getattr(frame, name)
        try:
            return function_value(frame, getter).call(frame, [self, ConstantValue(name)], {})
        except SymbolicRaise as raised:
            hook, _ = lookup_class(type(self.cls), "__getattr__")
            if not issubclass(raised.value.python_type(), AttributeError) or not isinstance(hook, types.FunctionType):
                raise
        return function_value(frame, hook).call(frame, [self, ConstantValue(name)], {})

    def plain_getattr(self, frame: Frame, name: str) -> Value:
        """cls.name, where the metaclass has no __getattribute__ of its own."""
        cls = self.cls
        if name in PLAIN_CLASS_ATTRIBUTES:
            found = fold_plain(frame, getattr, cls, name)
            fixed = not cls.__flags__ & HEAP_TYPE or self.mutability is NEW
            return literal(frame, found) if fixed else frame.wrap(found, Attr(Const(cls, cls.__name__), name))
        if name == "__class__":
            return class_value(frame, type(cls))
        if name == "__dict__":
            if is_stored_to(cls):
                return frame.break_graph("attribute_unknown", f"{cls.__name__}.__dict__ after a change")
            return frame.wrap(cls.__dict__, Const(cls.__dict__, f"{cls.__name__}.__dict__"))
        hook, _ = lookup_class(type(cls), "__getattr__")
        if not isinstance(hook, types.FunctionType):
            return self.looked_up(frame, name)
        try:
            return self.looked_up(frame, name)
        except SymbolicRaise as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
        return function_value(frame, hook).call(frame, [self, ConstantValue(name)], {})

    def looked_up(self, frame: Frame, name: str) -> Value:
        """What type.__getattribute__ gives."""
        cls = self.cls
        meta_static, meta_owner = lookup_class(type(cls), name)
        if meta_static is not NO_ATTRIBUTE and is_data_descriptor(meta_static) and defines(type(meta_static), "__get__"):
            return bind_static(frame, self, type(cls), meta_owner, meta_static, name)
        static, owner = lookup_class(cls, name)
        if static is NO_ATTRIBUTE:
            return self.from_metaclass(frame, name)
        return self.bind(frame, static, owner, name)

    def bind(self, frame: Frame, static: Any, owner: type, name: str) -> Value:
        """cls.name for what the MRO holds."""
        kind = type(static)
        if kind is types.FunctionType:
            return function_value(frame, static)
        if kind is classmethod and not isinstance(static.__func__, types.FunctionType):
            return frame.break_graph("attribute_unknown", f"{self.cls.__name__}.{name} is a class method of no function")
        if kind is classmethod:
            return BoundMethodValue(function_value(frame, held_function(frame, static)), self)
        if kind is staticmethod:
            return function_value(frame, held_function(frame, static))
        if isinstance(static, types.ClassMethodDescriptorType):
            return BoundBuiltin(self, name)
        if isinstance(static, C_METHODS) or kind is property:
            return frame.wrap(static, Const(static, f"{self.cls.__name__}.{name}"))
        getter, _ = lookup_class(kind, "__get__")
        if isinstance(getter, types.FunctionType) and kind not in LIBRARY_DESCRIPTORS:
            descriptor = class_attribute(frame, static, owner, name)
            return function_value(frame, getter).call(frame, [descriptor, NONE, self], {})
        if getter is not NO_ATTRIBUTE:  # not getattr: super() begins further up
            return literal(frame, fold_plain(frame, getter, static, None, self.cls))
        return class_attribute(frame, static, owner, name)

    def from_metaclass(self, frame: Frame, name: str) -> Value:
        """Attributes of type(cls)."""
        meta = type(self.cls)
        static, owner = lookup_class(meta, name)
        if static is NO_ATTRIBUTE:
            return frame.raise_new(AttributeError, f"type object '{self.cls.__name__}' has no attribute '{name}'")
        if isinstance(static, C_METHODS):
            return BoundBuiltin(self, name)
        return bind_static(frame, self, meta, owner, static, name)

    def native_attribute(self, frame: Frame, static: Any, name: str) -> Value:
        """A getset of a metaclass."""
        try:
            found = getattr(self.cls, name)
        except AttributeError as error:
            return frame.raise_new(AttributeError, *error.args)
        if type(found) is dict and self.mutability is not NEW:  # of annotations, which may be changed
            return frame.wrap(found, Attr(Const(self.cls, self.cls.__name__), name))
        return literal(frame, found)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        setter, _ = lookup_class(type(self.cls), "__setattr__")
        if isinstance(setter, types.FunctionType):
            function_value(frame, setter).call(frame, [self, ConstantValue(name), value], {})
        elif setter is type.__setattr__:
            self.plain_setattr(frame, name, value)
        else:
            frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")

    def plain_setattr(self, frame: Frame, name: str, value: Value) -> None:
        """type.__setattr__, for what does not bind to instances and stands in place of nothing that does."""
        cls = self.cls
        before = [lookup_class(kind, name)[0] for kind in (cls, type(cls))]
        binds = any(lookup_class(value.python_type(), method)[0] is not NO_ATTRIBUTE for method in DESCRIPTOR_METHODS)
        if (
            self.mutability is NEW
            or not cls.__flags__ & HEAP_TYPE
            or cls.__flags__ & IMMUTABLE
            or issubclass(cls, KNOWN_BY_TORCH)
            or name[:2] == "__" == name[-2:]
            or binds
            or any(map(is_descriptor, before))
        ):
            frame.break_graph("side_effect_unknown", f"assignment to {cls.__name__}.{name}")
        drop_reference(frame, cls, self.source, name)
        store(cls, name, value)
        frame.mutations.attribute(class_value(frame, cls), name, value)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        of_types = method_handler(type, name)
        if of_types is not None and not args and lookup_class(self.cls, name)[0] is NO_ATTRIBUTE:
            return of_types(frame, self.cls)
        if name in ("__instancecheck__", "__subclasscheck__"):
            return fold(frame, getattr(self.cls, name), args)
        if name == "fromkeys" and self.cls in (dict, collections.OrderedDict, collections.defaultdict):
            if self.cls is collections.OrderedDict and args and {*kwargs} == {"value"}:
                args, kwargs = [*args, *kwargs.values()], {}
            return call_row(frame, DictValue(cls=self.cls), "fromkeys", CALLS[dict, "fromkeys"].handler, args, kwargs)
        if name == "__new__" and python_new(self.cls) is None:
            return new_object(frame, args, kwargs)
        static, _ = lookup_class(self.cls, name)
        if isinstance(static, (types.ClassMethodDescriptorType, types.BuiltinMethodType)):
            row = CALLS.get(static)
            if row is not None:
                return row.handler(frame, [self, *args], kwargs)
            row = CALLS.get(getattr(self.cls, name))
            if row is not None:
                return row.handler(frame, args, kwargs)
            if not is_pure(getattr(self.cls, name)):
                return frame.break_graph("call_unknown", f"{self.cls.__module__}.{self.cls.__name__}.{name}")
            return fold(frame, getattr(self.cls, name), args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def of_type(self, frame: Frame, descriptor: Any, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """type.name(cls, ...): past what the class itself and its metaclass have under the name."""
        if name == "__setattr__" and len(args) == 2 and not kwargs:
            self.plain_setattr(frame, attribute_name(frame, args[0]), args[1])
            return NONE
        if name == "__getattribute__" and len(args) == 1 and not kwargs:
            return self.looked_up(frame, force_plain(frame, args[0]))
        if (type, name) in CALLS or lookup_class(self.cls, name)[0] is NO_ATTRIBUTE:
            return self.call_method(frame, name, args, kwargs)
        if name in OF_CLASSES and self.mutability is not NEW:
            return fold(frame, descriptor, [self, *args], kwargs)
        return frame.break_graph("call_unknown", f"type.{name} of {self.cls.__name__}")

    def getitem(self, frame: Frame, key: Value) -> Value:
        alias = lookup_class(type(self.cls), "__getitem__")[0] is NO_ATTRIBUTE and hasattr(self.cls, "__class_getitem__")
        if alias and not gives_alias(lookup_class(self.cls, "__class_getitem__")[0]):
            return self.call_method(frame, "__class_getitem__", [key], {})
        if alias and holds_own_instance(key):
            return frame.break_graph("builtin_unsupported", f"{self.cls.__name__}[...] that holds an instance of an own class")
        if alias or has_members(frame, self.cls, "__getitem__"):
            return fold(frame, lambda k: self.cls[k], [key])
        return self.special(frame, "__getitem__", [key]) or super().getitem(frame, key)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        if self.special(frame, "__setitem__", [key, value]) is None:
            super().setitem(frame, key, value)

    def iterate(self, frame: Frame) -> Value:
        if has_members(frame, self.cls, "__iter__"):
            return SequenceIterator([literal(frame, m) for m in self.cls])
        return self.special(frame, "__iter__", []) or super().iterate(frame)

    def own_reversed(self, frame: Frame) -> Value | None:
        return None if has_members(frame, self.cls, "__reversed__") else self.special(frame, "__reversed__", [])

    def contains(self, frame: Frame, item: Value) -> Value:
        if has_members(frame, self.cls, "__contains__"):
            return fold(frame, lambda i: i in self.cls, [item])
        found = self.special(frame, "__contains__", [item])
        return super().contains(frame, item) if found is None else ConstantValue(found.truth(frame))

    def length(self, frame: Frame) -> Value:
        if has_members(frame, self.cls, "__len__"):
            return ConstantValue(len(self.cls))
        found = self.special(frame, "__len__", [])
        if found is None or found.python_type() is not int:
            return super().length(frame)
        return found

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        prefix = "__r" if reverse else "__i" if op.endswith("=") else "__"
        found = self.special(frame, f"{prefix}{SPECIAL[op.rstrip('=')]}__", [other])
        if found is None and op == "|":
            return fold(frame, (lambda a, b: b | a) if reverse else (lambda a, b: a | b), [self, other])
        return implemented(found)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        found = implemented(self.special(frame, COMPARE_SPECIAL[op], [other]))
        if found is None and op == "!=":
            equal = implemented(self.special(frame, "__eq__", [other]))
            return None if equal is None else ConstantValue(not equal.truth(frame))
        return found

    def unary(self, frame: Frame, op: str) -> Value:
        return self.special(frame, UNARY_SPECIAL[op], []) or super().unary(frame, op)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return construct(frame, self, args, kwargs)
