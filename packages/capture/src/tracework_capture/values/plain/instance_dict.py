"""The __dict__ of an instance whose fields are traced: a view of them."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any

from ... import _C
from ...guards.classes import lookup_class
from ...sources import InstanceDict
from ..protocol.binding import BoundBuiltin
from ..protocol.constant import ConstantValue, force_plain, literal
from ..protocol.operators import binary, call_dunder
from ..protocol.value import Emitter, Frame, Value
from .mapping import DictValue, dict_of, pairs_of
from .sequence import NONE


class InstanceDictValue(Value):
    """object.__dict__ of an instance: a view of its fields."""

    cls = dict

    def __init__(self, owner: Any) -> None:
        super().__init__(None if owner.source is None else InstanceDict(owner.source))
        self.owner = owner

    def snapshot(self, frame: Frame) -> DictValue:
        """The fields as a dict value (a copy)."""
        owner = self.owner
        names = list(owner.instance_dict() or ())
        if owner.obj is not None:
            frame.guard("DICT_KEYS", InstanceDict(owner.source), tuple(names))
        names += [n for n in owner.fields if n not in names and not self.is_slot(n)]
        found = [(n, owner.field(frame, n)) for n in names]
        return dict_of(frame, [(literal(frame, n), v) for n, v in found if v is not None])

    def is_slot(self, name: str) -> bool:
        """Whether the fields have something under this name that is not in the dict."""
        return type(lookup_class(self.owner.cls, name)[0]) is MemberDescriptorType

    def key(self, frame: Frame, key: Value) -> Any:
        """A key as a name of a field."""
        name = force_plain(frame, key)
        if self.is_slot(name):
            return frame.break_graph(
                "attribute_unknown", f"{name} in the __dict__ of {self.owner.describe()}, which has a slot of that name"
            )
        return name

    def getitem(self, frame: Frame, key: Value) -> Value:
        found: Value | None = self.owner.field(frame, self.key(frame, key))
        return frame.raise_new(KeyError, force_plain(frame, key)) if found is None else found

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        self.owner.set_field(frame, self.key(frame, key), value)

    def contains(self, frame: Frame, item: Value) -> Value:
        return ConstantValue(self.owner.field(frame, self.key(frame, item)) is not None)

    def length(self, frame: Frame) -> Value:
        return self.snapshot(frame).length(frame)

    def truth(self, frame: Frame) -> bool:
        return self.snapshot(frame).truth(frame)

    def unpack(self, frame: Frame) -> list[Value]:
        return self.snapshot(frame).unpack(frame)

    def iterate(self, frame: Frame) -> Value:
        return self.snapshot(frame).iterate(frame)

    def getattr(self, frame: Frame, name: str) -> Value:
        return BoundBuiltin(self, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "get":
            return self.owner.field(frame, self.key(frame, args[0])) or (args[1] if len(args) > 1 else NONE)
        if name in ("__getitem__", "__contains__", "__setitem__"):
            return call_dunder(frame, self, name, args, kwargs)
        if name == "update":
            for key, value in pairs_of(frame, args[0]) if args else ():
                self.setitem(frame, key, value)
            for name, value in kwargs.items():
                self.setitem(frame, ConstantValue(name), value)
            return NONE
        if name == "pop":
            key = self.key(frame, args[0])
            found: Value | None = self.owner.field(frame, key)
            if found is None:
                return args[1] if len(args) > 1 else frame.raise_new(KeyError, key)
            self.owner.delete_field(frame, key)
            return found
        if name in ("keys", "values", "items", "copy"):
            return self.snapshot(frame).call_method(frame, name, args, kwargs)
        return frame.break_graph("call_unknown", f"__dict__.{name}")

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if op == "|=":
            self.call_method(frame, "update", [other], {})
            return self
        other = other.snapshot(frame) if isinstance(other, InstanceDictValue) else other
        left, right = (other, self.snapshot(frame)) if reverse else (self.snapshot(frame), other)
        return binary(frame, op, left, right)  # a relative of dict goes before it

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        other = other.snapshot(frame) if isinstance(other, InstanceDictValue) else other
        return self.snapshot(frame).compare(frame, op, other)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(_C.instance_dict)}({emit.load(self.owner)})"
