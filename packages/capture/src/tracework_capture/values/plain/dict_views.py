"""Views of mappings: keys(), values() and items()."""

from __future__ import annotations

from typing import Any

from ...guards.kinds import COMPARE_FUNCTIONS
from ..protocol.calls import CALLS, method, method_handler
from ..protocol.constant import ConstantValue
from ..protocol.keys import hashed_here
from ..protocol.native import NativeValue
from ..protocol.operators import equal
from ..protocol.value import Emitter, Frame, Value
from .iterators import builtins_own
from .mapping import DictValue
from .sequence import TupleValue
from .sets import IN_PLACE, OPERATORS, AbstractView, SetValue, as_set, is_plain_dict, members_of, new_set

VIEW_TYPES = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


class DictView(NativeValue, AbstractView):
    """keys(), values() or items() of a dict; live."""

    def __init__(self, mapping: DictValue, kind: str) -> None:
        super().__init__(None)
        self.mapping = mapping
        self.kind = kind
        self.is_set = kind != "values"

    def python_type(self) -> type:
        return VIEW_TYPES[self.kind]

    def unpack(self, frame: Frame) -> list[Value]:
        if self.kind == "keys":
            return self.mapping.all_keys(frame)
        if self.kind == "values":
            return self.mapping.all_values(frame)
        return [TupleValue(pair) for pair in self.mapping.all_items(frame)]

    def iterate(self, frame: Frame) -> Value:
        return self.mapping.iterator(frame, self.kind)

    def truth(self, frame: Frame) -> bool:
        return self.mapping.truth(frame)

    def length(self, frame: Frame) -> Value:
        return self.mapping.length(frame)

    def contains(self, frame: Frame, item: Value) -> Value:
        if self.kind == "keys":
            return self.mapping.contains(frame, item)
        if self.kind == "items" and isinstance(item, TupleValue):  # the key is looked up, and only its value compared
            pair = item.all_items(frame)
            if len(pair) != 2 or not self.mapping.contains(frame, pair[0]).constant():
                return ConstantValue(False)
            return ConstantValue(equal(frame, self.mapping.getitem(frame, pair[0]), pair[1]))
        return ConstantValue(any(equal(frame, i, item) for i in self.unpack(frame)))

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        handler = method_handler(set, name) if self.is_set else None
        if handler is not None:
            return handler(frame, SetValue(frame, self.unpack(frame)), *args, **kwargs)
        return super().call_method(frame, name, args, kwargs)

    def as_set(self, frame: Frame) -> SetValue:
        """The set with the same members."""
        return SetValue(frame, self.unpack(frame))

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if not self.is_set or op not in ("|", "&", "-", "^"):
            return None
        if op == "&":
            return intersection_with_view(frame, self, other)
        return with_view(frame, op, *((other, self) if reverse else (self, other)))

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        """As sets, by looking up: values need no hash."""
        is_set = isinstance(other, SetValue) or isinstance(other, DictView) and other.is_set
        if not self.is_set or not is_set:
            return None
        fits = COMPARE_FUNCTIONS[{"!=": "=="}.get(op, op)]
        same = fits(self.length(frame).constant(), other.length(frame).constant())
        small, large = (other, self) if op in (">", ">=") else (self, other)
        members = list(small.members.values()) if isinstance(small, SetValue) else small.unpack(frame) if same else ()
        same = same and all(large.contains(frame, member).constant() for member in members)
        return ConstantValue(same != (op == "!="))

    def reload(self, emit: Emitter) -> str:
        return builtins_own(emit, self.mapping, self.kind)


def intersection_with_view(frame: Frame, view: DictView, other: Value) -> SetValue:
    """view & other, or other & view: the smaller of two views comes second, and a set that is not smaller walks the view. What is neither
    may be gone through only once."""
    walked, looked_up, given = other, as_set(frame, view), as_set(frame, other, strict=True)
    second: Any = other
    if given is not None:
        sizes = len(looked_up.members), len(given.members)
        if (sizes[0] < sizes[1]) if isinstance(other, DictView) else (second.cls is set and sizes[0] <= sizes[1]):
            walked, looked_up = view, given
    pairs = [(hashed_here(frame, member), member) for member in members_of(frame, walked)]
    return SetValue(frame, [member for hashed, member in pairs if hashed in looked_up.members])


def with_view(frame: Frame, op: str, left: Value, right: Value) -> SetValue:
    """left | right, left - right, left ^ right, of which one is a view: a new set of the first is changed."""
    if op == "^" and isinstance(left, DictView) and isinstance(right, DictView) and left.kind == right.kind == "items":
        return items_of_one(frame, left, right)
    if isinstance(left, DictView) and left.kind == "keys" and is_plain_dict(left.mapping):
        left = left.mapping
    made = new_set(frame, set, left)
    CALLS[set, IN_PLACE[OPERATORS[op]]].handler(frame, made, right)
    return made


def items_of_one(frame: Frame, left: DictView, right: DictView) -> SetValue:
    """The items that one of two dicts has: those of the smaller one first."""
    if right.length(frame).constant() > left.length(frame).constant():
        left, right = right, left
    mine, others = as_set(frame, left).members, as_set(frame, right).members
    return SetValue(frame, [m for k, m in others.items() if k not in mine] + [m for k, m in mine.items() if k not in others])


@method(dict, "keys")
def keys(frame: Frame, self: DictValue) -> Value:
    return DictView(self, "keys")


@method(dict, "values")
def values(frame: Frame, self: DictValue) -> Value:
    return DictView(self, "values")


@method(dict, "items")
def items(frame: Frame, self: DictValue) -> Value:
    return DictView(self, "items")
