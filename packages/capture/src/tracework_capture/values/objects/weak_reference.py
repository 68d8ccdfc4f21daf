"""weakref.ref: calling it gives the object that it refers to at that time."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from ... import _C
from ...errors import BreakGraph
from ...guards.classes import lookup_class
from ...sources import Attr, Referent
from ..protocol.calls import call
from ..protocol.finalizers import existing, is_held, may_be_dropped, may_have_died
from ..protocol.keys import IDENTITY_HASH, IdentityKey, ReferenceKey, behind, by_identity
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Emitter, Frame, HeldValue, Value
from .class_statement import NewClassValue
from .class_value import ClassValue
from .function import FunctionValue, NewFunctionValue
from .instance import ObjectValue


class WeakReference(HeldValue):
    """An existing one. It is hashed and compared as what it refers to is, which is not known to be the same object at the next call."""

    def same_object(self, other: Value) -> bool | None:
        return other.same_object(self) if isinstance(other, NewReference) else self is other

    def hash_key(self, frame: Frame) -> Any:
        target = self.obj()
        frame.guard("IDENTITY", self.source, self.obj)
        return IdentityKey(self.obj) if target is None else key_to(frame, self, self.referred(frame))

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "key" and type(self.obj) is weakref.KeyedRef:
            return frame.wrap(self.obj.key, Attr(self.source, name))
        return super().getattr(frame, name)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        return frame.break_graph("operation_unknown", f"comparison of {self.describe()}")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            return frame.break_graph("call_unknown", f"{self.describe()} with arguments")
        return self.referred(frame)

    def referred(self, frame: Frame) -> Value:
        """What it gives now."""
        obj = self.obj()
        if obj is not None and may_have_died(frame, obj):
            return frame.break_graph("value_not_known", f"{self.describe()} is asked for an object that may have died")
        return frame.wrap(obj, Referent(self.source))


def key_to(frame: Frame, reference: Value, referent: Value) -> ReferenceKey:
    """What stands for a reference as a key: it is hashed and compared as what it refers to is."""
    if lookup_class(referent.python_type(), "__hash__")[0] not in IDENTITY_HASH:
        return frame.break_graph("unhashable_value", f"{reference.describe()}, to what defines its own equality")
    if referent.source is None:
        return ReferenceKey(referent)
    obj = behind(by_identity(referent.hash_key(frame)))
    frame.guard("IDENTITY", referent.source, obj)
    return ReferenceKey(obj)


class NewReference(WeakReference):
    """One that the traced program made. As long as the first one without a callback lives, each further one is the same object."""

    def __init__(self, referent: Value, callback: Value | None = None, key: Value | None = None) -> None:
        super().__init__(None, None)
        self.referent = referent
        self.created_at = -1
        self.callback = callback
        self.key = key  # of a KeyedRef

    def python_type(self) -> type:
        return weakref.ref if self.key is None else weakref.KeyedRef

    def held(self) -> Iterable[Any]:
        return [part for part in (self.callback, self.key) if part is not None]

    def getattr(self, frame: Frame, name: str) -> Value:
        return self.key if name == "key" and self.key is not None else Value.getattr(self, frame, name)

    def describe(self) -> str:
        return f"a weak reference to {self.referent.describe()}"

    def hash_key(self, frame: Frame) -> Any:
        return key_to(frame, self, self.referred(frame))

    def same_object(self, other: Value) -> bool | None:
        if self.callback is not None or getattr(other, "callback", None) is not None:
            return self is other
        if isinstance(other, NewReference):
            return other.referent is self.referent or is_same_definition(self.referent, other.referent)
        return None if isinstance(other, WeakReference) else False

    def referred(self, frame: Frame) -> Value:
        if not is_held(frame, self.referent):
            return frame.break_graph("value_not_known", f"{self.describe()}, which may have died")
        return self.referent

    def reload(self, emit: Emitter) -> str:
        if self.referent.source is None:  # what is rebuilt of it after the graph may live shorter than the program's own
            stop = BreakGraph("cannot_rebuild", self.describe())
            stop.created_at = self.created_at
            raise stop
        more = "".join(f", {emit.load(part)}" for part in self.held())
        return f"{emit.const(self.python_type())}({emit.load(self.referent)}{more})"


DEFINITIONS = (ClassValue, FunctionValue)
"""Of one class or function there may be several values, each of which says which object it is."""


def is_same_definition(value: Value, other: Value) -> bool:
    """Whether both are one existing class or function."""
    return type(value) is type(other) and type(value) in DEFINITIONS and value.real() is other.real()


@call(weakref.ref)
def make_reference(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """weakref.ref(value), weakref.ref(value, callback)"""
    if len(args) not in (1, 2) or kwargs:
        return frame.break_graph("call_unknown", "weakref.ref of something else than an object")
    return reference_to(frame, args[0], args[1] if len(args) == 2 and args[1].python_type() is not type(None) else None)


def reference_to(frame: Frame, value: Value, callback: Value | None) -> NewReference:
    """A new weak reference."""
    is_known = isinstance(value, (ObjectValue, AbstractTensor, NewFunctionValue, NewClassValue)) or type(value) in DEFINITIONS
    if not is_known or value.source is not None and existing(value) is None:
        return frame.break_graph("call_unknown", "weakref.ref of something else than an object")
    if callback is not None and value.source is None:
        return frame.break_graph("call_unknown", "weakref.ref with a callback, of what may die before the reference is made")
    if type(value) is FunctionValue:
        value.hash_key(frame)  # guards which function it is
    if not value.python_type().__weakrefoffset__:
        return frame.raise_new(TypeError, f"cannot create weak reference to '{_C.type_name(value.python_type())}' object")
    if callback is not None:
        return watching(frame, value, callback)
    if isinstance(value, ObjectValue):
        value.is_referred_to = True
    made = NewReference(value)
    made.created_at = frame.progress.step
    return made


@call(weakref.KeyedRef)
def make_keyed_reference(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """weakref.KeyedRef(value, callback, key)"""
    if len(args) != 3 or kwargs or args[1].python_type() is type(None):
        return frame.break_graph("call_unknown", "weakref.KeyedRef with these arguments")
    made = reference_to(frame, args[0], args[1])
    made.key = args[2]
    return made


def watching(frame: Frame, value: Value, callback: Value) -> NewReference:
    """A reference with a callback to an existing object: it is made when the graph has run, and the object must live until then and beyond."""
    if not is_held(frame, value) or may_be_dropped(frame, existing(value)):
        return frame.break_graph("value_not_known", f"{value.describe()}, which may have died")
    frame.memory.watched = True
    if any(obj is existing(value) for obj in frame.memory.arguments.values()):
        frame.memory.with_finalizers += (existing(value),)
    return NewReference(value, callback)
