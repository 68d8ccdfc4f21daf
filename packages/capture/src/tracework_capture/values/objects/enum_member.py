"""Enumerations and their members: constants that are objects, too. Methods in Python are traced, those of C are asked now."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

from ...guards.classes import NO_ATTRIBUTE, attributes_of, find, lookup_class
from ...sources import Attr, Const
from ..protocol.binding import C_METHODS, python_new
from ..protocol.constant import ConstantValue, fold, fold_plain, force_plain, literal
from ..protocol.special_methods import COMPARE_SPECIAL, SPECIAL, UNARY_SPECIAL
from ..protocol.value import Frame, Value
from .instance import ObjectValue

OF_THE_MEMBER = {"name": "_name_", "value": "_value_", "_name_": "_name_", "_value_": "_value_"}
"""What is set once, when the member is made -> where the member keeps it."""
OF_OBJECT = frozenset({"__setattr__", "__delattr__", "__init__", "__getattribute__"})


class EnumMember(ObjectValue):
    """A member, known by identity. It may be in the making: a class statement, or a flag of several bits, adds to it."""

    def __init__(self, obj: Any) -> None:
        super().__init__(type(obj), obj, Const(obj, repr_of(obj)))
        self.atom = ConstantValue(obj)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.obj

    real = constant

    def identity(self, frame: Frame) -> Any:
        return self.obj

    hash_key = as_graph_arg = identity

    def in_python(self, frame: Frame, *names: str) -> bool:
        """Whether the class has a Python function for one of the methods."""
        return any(isinstance(lookup_class(self.cls, name)[0], types.FunctionType) for name in names)

    def plain_getattr(self, frame: Frame, name: str, use_hook: bool = True) -> Value:
        kept = OF_THE_MEMBER.get(name)
        if kept is not None and kept not in self.fields and lookup_class(self.cls, name)[0] is find(enum.Enum, name)[0]:
            found = (self.instance_dict() or {}).get(kept, NO_ATTRIBUTE)
            if found is not NO_ATTRIBUTE:
                return literal(frame, found)
        return super().plain_getattr(frame, name, use_hook)

    def special(self, frame: Frame, name: str, args: list[Value]) -> Value | None:
        static, owner = lookup_class(self.cls, name)
        if isinstance(static, C_METHODS) and owner is not object:
            return fold(frame, getattr(self.obj, name), args)
        return super().special(frame, name, args)

    def call_native(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in OF_OBJECT:
            return super().call_native(frame, name, args, kwargs)
        static = next(c.__dict__[name] for c in self.cls.__mro__ if isinstance(c.__dict__.get(name), C_METHODS))
        return fold(frame, static.__get__(self.obj, self.cls), args, kwargs)

    def own_text(self, frame: Frame, fn: Callable[[object], str]) -> Value | None:
        name = f"__{fn.__name__}__"
        static, owner = lookup_class(self.cls, name)
        if owner is not object and not isinstance(static, types.FunctionType):
            return self.call_native(frame, name, [], {})
        return super().own_text(frame, fn)

    def own_format(self, frame: Frame, spec: str) -> Value | None:
        found = super().own_format(frame, spec)
        if found is None and lookup_class(self.cls, "__format__")[1] is not object:
            return self.call_native(frame, "__format__", [ConstantValue(spec)], {})
        return found

    def truth(self, frame: Frame) -> bool:
        python = self.in_python(frame, "__bool__", "__len__")
        return super().truth(frame) if python else self.atom.truth(frame)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        stem = SPECIAL[op.rstrip("=")]
        prefix = "__r" if reverse else "__i" if op.endswith("=") else "__"
        python = self.in_python(frame, f"{prefix}{stem}__")
        return super().binary(frame, op, other, reverse) if python else self.atom.binary(frame, op, other, reverse)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        python = self.in_python(frame, COMPARE_SPECIAL[op], *(("__eq__",) if op == "!=" else ()))
        return super().compare(frame, op, other) if python else self.atom.compare(frame, op, other)

    def unary(self, frame: Frame, op: str) -> Value:
        return super().unary(frame, op) if self.in_python(frame, UNARY_SPECIAL[op]) else self.atom.unary(frame, op)


def has_members(frame: Frame, cls: type, method: str) -> bool:
    """Whether the class is an enumeration that does this as enumerations do. Its class statement may still be adding members."""
    if not issubclass(type(cls), enum.EnumMeta) or lookup_class(type(cls), method)[0] is not enum.EnumMeta.__dict__[method]:
        return False
    members = attributes_of(cls).get("_member_map_")
    if members is not None:
        frame.guard("LENGTH", Attr(Const(cls, cls.__name__), "_member_map_"), len(members))
    return members is not None


def member_of(frame: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(value)"""
    if len(args) != 1 or kwargs or python_new(cls) is not enum.Enum.__new__:
        return frame.break_graph("call_unknown", f"{cls.__name__} with these arguments")
    value = force_plain(frame, args[0])
    try:
        known = type(value) is cls or value in cls._value2member_map_
    except TypeError:
        return frame.break_graph("call_unknown", f"{cls.__name__} of a value without a hash")
    if not known and lookup_class(cls, "_missing_")[1] not in (enum.Enum, enum.Flag):
        return frame.break_graph("call_unknown", f"{cls.__name__}._missing_")
    return literal(frame, fold_plain(frame, cls, value))


def repr_of(obj: Any) -> str:
    """A name for the member, without running its own __repr__."""
    return f"{type(obj).__name__}.{(getattr(obj, '__dict__', None) or {}).get('_name_', '?')}"
