"""super(): attributes from the classes after one in the order of bases, and methods of C that are found there."""

from __future__ import annotations

import types
from typing import Any, cast

from ...bytecode.resume import original_code
from ...guards.classes import lookup_class, resolution_order
from ...sources import Const
from ..plain.sequence import NONE
from ..protocol.binding import C_METHODS, BoundBuiltin, bind_static, class_value, refuse_method
from ..protocol.calls import CALLS
from ..protocol.constant import force_plain
from ..protocol.properties import function_value, held_function
from ..protocol.value import Emitter, Frame, Value
from .class_value import ClassValue
from .construction import init_part, new_object, type_call
from .enum_member import EnumMember
from .exception import ExceptionValue
from .function import BoundMethodValue
from .instance import ObjectValue


def is_among_bases(base: type, cls: type) -> bool:
    """Whether `base` is in the method resolution order of `cls`, which a class whose metaclass is computing it has not got yet."""
    return base in resolution_order(cls)


class SuperValue(Value):
    """super(start, owner)"""

    cls = super

    def __init__(self, start: type, owner: Value) -> None:
        super().__init__(None)
        self.start = start
        self.owner = owner

    def mro(self) -> tuple[type, tuple[type, ...]]:
        """Classes after `start` in the MRO of the owner's type (or of the owner, when that is a class)."""
        cls = (
            self.owner.cls
            if isinstance(self.owner, ClassValue) and is_among_bases(self.start, self.owner.cls)
            else self.owner.python_type()
        )
        order = resolution_order(cls)
        return cls, order[order.index(self.start) + 1 :]

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__class__":  # the one name that is not looked up in the owner's classes
            return class_value(frame, super)
        cls, order = self.mro()
        for base in order:
            static, owner = lookup_class(base, name)  # which guards what the class has, or that it has nothing
            if owner is base:
                return self.bind(frame, cls, base, static, name)
        if name in ("__thisclass__", "__self_class__"):
            return class_value(frame, self.start if name == "__thisclass__" else cls)
        if name == "__self__":
            return self.owner
        return frame.raise_new(AttributeError, f"'super' object has no attribute '{name}'")

    def bind(self, frame: Frame, cls: type, base: type, static: Any, name: str) -> Value:
        """Binds what was found to the owner."""
        owner = self.owner
        if isinstance(owner, ClassValue):
            if name == "__new__":
                if isinstance(static, (staticmethod, types.FunctionType)):
                    return function_value(frame, getattr(static, "__func__", static))
                return NewBuiltin(base)
            if isinstance(static, classmethod):
                return BoundMethodValue(function_value(frame, held_function(frame, static)), owner)
            if is_among_bases(self.start, owner.cls) and isinstance(static, types.ClassMethodDescriptorType):
                return NativeClassMethod(owner.cls, base, static)
            if is_among_bases(self.start, owner.cls):
                return owner.bind(frame, static, base, name)
        if isinstance(static, C_METHODS):
            return NativeMethod(owner, base, static, name)
        return bind_static(frame, owner, cls, base, static, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.getattr(frame, name).call(frame, args, kwargs)


class NewBuiltin(Value):
    """object.__new__ and its like."""

    cls = types.BuiltinFunctionType

    def __init__(self, base: type) -> None:
        super().__init__(Const(base.__new__, f"{base.__name__}.__new__"))

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return new_object(frame, args, kwargs)


class NativeClassMethod(Value):
    """super().method of a class where C defines it: looked up again by name, it would be that of the class."""

    def __init__(self, cls: type, base: type, descriptor: types.ClassMethodDescriptorType) -> None:
        super().__init__(None)
        self.cls, self.base, self.descriptor = cls, base, descriptor

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.base is object and self.descriptor.__name__ == "__init_subclass__" and not (args or kwargs):
            return NONE
        row = CALLS.get(self.descriptor)
        if row is not None:
            return row.handler(frame, [class_value(frame, self.cls), *args], kwargs)
        return frame.break_graph("call_unknown", f"{self.base.__name__}.{self.descriptor.__name__} of {self.cls.__name__}")

    def reload(self, emit: Emitter) -> str:
        return emit.const(self.descriptor.__get__(None, self.cls))


class NativeMethod(BoundBuiltin):
    """super().method where C defines it."""

    def __init__(self, owner: Value, base: type, descriptor: Any, name: str) -> None:
        super().__init__(owner, name, descriptor)
        self.base = base

    def reload(self, emit: Emitter) -> str:
        if isinstance(self.owner, ClassValue):
            return emit.const(cast(Any, self.descriptor).__get__(self.owner.cls, type(self.owner.cls)))
        # its name may lead to an override; without a type, CPython's binding of some methods crashes
        owner = emit.load(self.owner)
        return f"{emit.const(self.descriptor)}.__get__({owner}, {emit.const(type)}({owner}))"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        owner = self.owner
        if isinstance(owner, ClassValue) and self.name == "__call__":
            return type_call(frame, owner, list(args), kwargs)
        if isinstance(owner, ClassValue) and self.descriptor is type.__setattr__ and len(args) == 2 and not kwargs:
            owner.plain_setattr(frame, force_plain(frame, args[0]), args[1])
            return NONE
        if isinstance(owner, ExceptionValue):
            return owner.call_native(frame, self.name, args, kwargs)
        if isinstance(owner, ObjectValue):
            if self.name == "__init__" and owner.part is not None and self.base is not object:
                return init_part(frame, owner, args, kwargs)
            if not isinstance(owner, EnumMember):  # whose own way it is to ask its atom
                refuse_method(frame, owner, self.base, self.name)
            return owner.call_native(frame, self.name, args, kwargs)
        return owner.call_method(frame, self.name, args, kwargs)


def super_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """super() and super(cls, obj)."""
    if len(args) == 2 and not kwargs:
        start = args[0].real()
        of = args[1]
        fits = isinstance(start, type) and (
            is_among_bases(start, of.python_type()) or isinstance(of, ClassValue) and is_among_bases(start, of.cls)
        )
        if fits:
            return SuperValue(start, of)
    if args or kwargs:
        return frame.break_graph("call_unknown", "super() with these arguments")
    code = original_code(frame.code)  # a continuation has the first argument in its first slot, too (graph/finish.py)
    if not code.co_argcount:
        return frame.raise_new(RuntimeError, "super(): no arguments")
    first = code.co_varnames[0]
    owner: Value | None = frame.locals.get(first)
    if owner is None and first in frame.cells:
        owner = frame.cells[first].get(frame)
    if owner is None:
        return frame.raise_new(RuntimeError, "super(): arg[0] deleted")
    cell = frame.cells.get("__class__")
    if cell is None:
        return frame.raise_new(RuntimeError, "super(): __class__ cell not found")
    start = cell.get(frame)
    if start is None:
        return frame.raise_new(RuntimeError, "super(): empty __class__ cell")
    return super_(frame, [start, owner], {})
