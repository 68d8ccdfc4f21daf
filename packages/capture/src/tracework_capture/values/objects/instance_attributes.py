"""Attributes of instances by Python's own protocol: hooks of the class, data descriptors, what the instance holds, the order of bases."""

from __future__ import annotations

import types
from typing import Any, NoReturn

from ... import _C
from ...bytecode.facts import VERSION
from ...guards.classes import NO_ATTRIBUTE, attributes_of, defines, lookup_class
from ...sources import Attr, ClassAttr, Const
from ..protocol.binding import C_METHODS, DELETED, FIELD, SLOT, bind_static, class_value, is_data_descriptor
from ..protocol.constant import ConstantValue
from ..protocol.properties import function_value, is_property, use_property
from ..protocol.value import EXISTING, Frame, SymbolicRaise, Value
from .instance_fields import InstanceFields


class InstanceAttributes(InstanceFields):
    """An instance with its attributes."""

    def getattr(self, frame: Frame, name: str) -> Value:
        getter = self.hook(frame, "__getattribute__")
        if getter is not None:
            try:
                return function_value(frame, getter).call(frame, [self, ConstantValue(name)], {})
            except SymbolicRaise as raised:
                if self.hook(frame, "__getattr__") is None or not issubclass(raised.value.python_type(), AttributeError):
                    raise
                return self.missing(frame, name)
        return self.plain_getattr(frame, name)

    def hook(self, frame: Frame, name: str) -> Any:
        """The function that the class has for a step of attribute access; None where that step is Python's own. Breaks where it is one
        in C, as of weakref.proxy, threading.local and decimal.Context."""
        static, _ = lookup_class(self.cls, name)
        if isinstance(static, types.FunctionType):
            return static
        if type(static) is types.WrapperDescriptorType and name == static.__name__ and not _C.is_generic(static):
            return frame.break_graph("attribute_unknown", f"{self.cls.__name__}.{name}, which is its own")
        if static is NO_ATTRIBUTE or isinstance(static, C_METHODS) and static.__name__ == name:
            return None
        if isinstance(static, (types.MethodDescriptorType, types.WrapperDescriptorType)):  # __getattr__ = dict.__getitem__
            return static
        return frame.break_graph("attribute_unknown", f"{self.cls.__name__}.{name} is a {type(static).__name__}")

    def pretends(self, frame: Frame) -> bool:
        """Whether code of the user says what __class__ is."""
        return self.hook(frame, "__getattribute__") is not None or lookup_class(self.cls, "__class__")[1] is not object

    def plain_getattr(self, frame: Frame, name: str, use_hook: bool = True) -> Value:
        """object.__getattribute__, then __getattr__."""
        static, owner = lookup_class(self.cls, name)
        if name == "__class__" and owner is object:
            return class_value(frame, self.cls)
        if static is not NO_ATTRIBUTE and is_data_descriptor(static) and defines(type(static), "__get__"):
            return self.bind_or_missing(frame, owner, static, name, use_hook)
        found = self.field(frame, name)
        if found is not None:
            return found
        if static is not NO_ATTRIBUTE:
            if self.has_hidden_dict() and not defines(type(static), "__get__"):
                return frame.wrap(object.__getattribute__(self.obj, name), Attr(self.source, name))
            return self.bind_or_missing(frame, owner, static, name, use_hook)
        if use_hook:
            return self.missing(frame, name)
        return self.no_attribute(frame, name)

    def bind_or_missing(self, frame: Frame, owner: type, static: Any, name: str, use_hook: bool) -> Value:
        """Binds; an AttributeError inside a property falls to __getattr__, as in Python."""
        if not use_hook or self.hook(frame, "__getattr__") is None:
            return bind_static(frame, self, self.cls, owner, static, name)
        try:
            return bind_static(frame, self, self.cls, owner, static, name)
        except SymbolicRaise as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
        return self.missing(frame, name)

    def missing(self, frame: Frame, name: str) -> Value:
        """Normal look-up failed."""
        hook = self.hook(frame, "__getattr__")
        if hook is not None:
            return function_value(frame, hook).call(frame, [self, ConstantValue(name)], {})
        return self.no_attribute(frame, name)

    def no_place(self, frame: Frame, name: str) -> NoReturn:
        """An attribute is set or deleted for which the object has neither a slot nor a dict."""
        if VERSION < (3, 13):
            frame.raise_new(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        own = any(lookup_class(self.cls, hook)[1] is not object for hook in ("__setattr__", "__delattr__"))
        self.no_attribute(frame, name, "" if own else " and no __dict__ for setting new attributes")

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        setter = self.hook(frame, "__setattr__")
        if setter is not None:
            function_value(frame, setter).call(frame, [self, ConstantValue(name), value], {})
            return
        self.plain_setattr(frame, name, value)

    def plain_setattr(self, frame: Frame, name: str, value: Value) -> None:
        """object.__setattr__"""
        static, owner = lookup_class(self.cls, name)
        if name == "__class__":
            frame.break_graph("side_effect_unknown", "assignment to __class__")
        if static is not NO_ATTRIBUTE and is_data_descriptor(static) and type(static) is not SLOT:
            self.set_through(frame, static, owner, name, value)
            return
        self.refuse_member(frame, static, name)
        if type(static) is not SLOT and not self.cls.__dictoffset__:
            if static is NO_ATTRIBUTE:
                self.no_place(frame, name)
            frame.raise_new(AttributeError, f"'{self.cls.__name__}' object attribute '{name}' is read-only")
        self.set_field(frame, name, value)

    def refuse_member(self, frame: Frame, static: Any, name: str) -> None:
        """What a class in C shows of its instances looks like a slot, and may be read-only."""
        if type(static) is SLOT and "__slots__" not in attributes_of(static.__objclass__):
            frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")

    def set_through(self, frame: Frame, static: Any, owner: type, name: str, value: Value) -> None:
        """A property or another data descriptor takes the value."""
        if is_property(static, "__set__"):
            use_property(frame, static, "__set__", self, self.cls, value)
            return
        if type(static) is FIELD:
            frame.raise_new(AttributeError, "can't set attribute")
        setter, _ = lookup_class(type(static), "__set__")
        if not isinstance(setter, types.FunctionType):
            frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")
        descriptor = frame.wrap(static, ClassAttr(Const(owner, owner.__name__), name))
        function_value(frame, setter).call(frame, [descriptor, self, value], {})

    def delattr(self, frame: Frame, name: str) -> None:
        deleter = self.hook(frame, "__delattr__")
        if deleter is not None:
            function_value(frame, deleter).call(frame, [self, ConstantValue(name)], {})
            return
        self.plain_delattr(frame, name)

    def plain_delattr(self, frame: Frame, name: str) -> None:
        """object.__delattr__"""
        static, _ = lookup_class(self.cls, name)
        if static is not NO_ATTRIBUTE and is_data_descriptor(static) and type(static) is not SLOT:
            if is_property(static, "__delete__"):
                use_property(frame, static, "__delete__", self, self.cls)
                return
            if type(static) is FIELD:
                frame.raise_new(AttributeError, "can't delete attribute")
            frame.break_graph("side_effect_unknown", f"del {self.cls.__name__}.{name}")
        self.refuse_member(frame, static, name)
        if type(static) is SLOT:
            if not self.fills(frame, static, name):
                frame.raise_new(AttributeError, name)
        elif self.field(frame, name) is None:
            if static is NO_ATTRIBUTE and not self.cls.__dictoffset__:
                self.no_place(frame, name)
            if not self.cls.__dictoffset__:
                frame.raise_new(AttributeError, f"'{self.cls.__name__}' object attribute '{name}' is read-only")
            frame.raise_new(AttributeError, f"'{_C.type_name(self.cls)}' object has no attribute '{name}'")
        self.delete_field(frame, name)

    def delete_field(self, frame: Frame, name: str) -> None:
        """Deletes from the instance, past every descriptor and __delattr__."""
        self.may_drop(frame, name)
        if self.mutability is EXISTING:
            frame.mutations.deleted_attribute(self, name, stored_before=name in self.fields)
            self.fields[name] = DELETED
        else:
            del self.fields[name]
