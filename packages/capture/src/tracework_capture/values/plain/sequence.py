"""Sequences: list, tuple, namedtuple, torch.Size, deque.

Items of an existing sequence are wrapped when they are first read (`Pending` until then), so only what is looked at is guarded.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch

from ...errors import NotPlain
from ...guards.classes import attributes_of, lookup_class
from ...sources import Attr, Item, Source
from ..protocol.binding import bind_class_attribute
from ..protocol.calls import CALLS
from ..protocol.constant import ConstantValue, force_plain, literal, plain
from ..protocol.finalizers import drop_reference
from ..protocol.iteration import iterate_all
from ..protocol.kinds import AbstractSequence, AbstractTuple
from ..protocol.make import make
from ..protocol.native import NativeValue
from ..protocol.operators import compare_sequences, equal
from ..protocol.user_keys import has_user_key, is_hashed_alike
from ..protocol.value import EXISTING, NEW, Emitter, Frame, LazyValue, Value, builtin_part
from .iterators import LiveSequenceIterator
from .ranges import sequence_index


class Pending:
    """An item of an existing container that nobody has read yet."""

    __slots__ = ("obj", "source")

    def __init__(self, obj: Any, source: Source | None) -> None:
        self.obj = obj
        self.source = source


def pending_items(obj: Sequence[Any], source: Source) -> list[Pending]:
    """The items of an existing sequence, unread."""
    return [Pending(item, Item(source, index)) for index, item in enumerate(obj)]


class SequenceValue(NativeValue, AbstractSequence):
    """What list, tuple and deque share."""

    original: tuple[Any, ...] = ()
    """The items of an existing list or deque, as they were."""

    owner = None  # the object of a subclass that this is the built-in part of
    iterates_in_c = True
    is_holder = True

    def __init__(self, items: Iterable[Any], source: Any = None, cls: type = list) -> None:
        super().__init__(source)
        self.items = list(items)
        self.cls = cls
        self.mutability = NEW if source is None else EXISTING

    def held(self) -> Iterable[Any]:
        return self.items

    def describe(self) -> str:
        return f"{self.cls.__name__} of {len(self.items)}" + (f" from {self.source}" if self.source is not None else "")

    def item(self, frame: Frame, index: int) -> Value:
        """The item at a plain, valid index."""
        found: Any = self.items[index]
        if type(found) is Pending:
            found = self.items[index] = frame.wrap(found.obj, found.source)
        item: Value = found
        return item

    def look(self, frame: Frame) -> None:
        """Somebody wants to know how many items there are."""

    def all_items(self, frame: Frame) -> list[Value]:
        """All items as values."""
        self.look(frame)
        return [self.item(frame, i) for i in range(len(self.items))]

    def items_but(self, frame: Frame, unread: Collection[int]) -> list[Value]:
        """All items as values; those at the places `unread` that nobody has read are not looked at, and nobody will."""
        self.look(frame)
        return [
            LazyValue(item.obj, item.source) if place in unread and type(item) is Pending else self.item(frame, place)
            for place, item in enumerate(self.items)
        ]

    def unpack(self, frame: Frame) -> list[Value]:
        return self.all_items(frame)

    looked = True  # whether how many items there are is known, and guarded where that can change

    def as_plain(self) -> Any:
        if not self.looked or any(type(i) is Pending for i in self.items):
            raise NotPlain(self)
        return self.make(plain(i) for i in self.items)

    def unread(self) -> int:
        return sum(type(i) is Pending for i in self.items) + (not self.looked)

    def make(self, items: Iterable[Any]) -> Any:
        """A plain object of this type."""
        return self.cls(items)

    def truth(self, frame: Frame) -> bool:
        self.look(frame)
        return bool(self.items)

    def length(self, frame: Frame) -> Value:
        self.look(frame)
        return ConstantValue(len(self.items))

    def iterate(self, frame: Frame) -> Value:
        self.look(frame)
        return LiveSequenceIterator(self, frame.progress.step)

    state = 0  # how often items came or went

    def is_unchanged(self) -> bool:
        """Whether the items of an existing sequence are those that it had."""
        return True

    def found_at(
        self, frame: Frame, item: Value, start: int = 0, stop: int | None = None, changed: type[Exception] = RuntimeError
    ) -> Iterator[int]:
        """Positions of what equals the item, one at a time, in the sequence as the comparisons leave it. `changed` is raised where items
        of a deque come or go meanwhile."""
        self.look(frame)
        state, position = self.state, start
        while position < min(len(self.items), len(self.items) if stop is None else stop):
            if equal(frame, self.item(frame, position), item):
                yield position
            if self.kind == "deque" and self.state != state:
                frame.raise_new(changed, MUTATED)
            position += 1

    def contains(self, frame: Frame, item: Value) -> Value:
        return ConstantValue(next(self.found_at(frame, item), None) is not None)

    def getitem(self, frame: Frame, key: Value) -> Value:
        index = sequence_index(frame, key, self.kind)
        if isinstance(index, slice) or index < 0 or index >= len(self.items) or type(self.items[index]) is not Pending:
            self.look(frame)
        if isinstance(index, slice):
            self.touch_slice(frame, index)
            return self.sliced(self.items[index])
        if not -len(self.items) <= index < len(self.items):
            return frame.raise_new(IndexError, f"{self.kind} index out of range")
        return self.item(frame, index)

    def touch_slice(self, frame: Frame, index: slice) -> None:
        for position in range(*index.indices(len(self.items))):
            self.item(frame, position)

    def sliced(self, items: list[Any]) -> SequenceValue:
        return type(self)(items, cls=self.cls)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if op == "*":
            repeated = self.repeated(frame, other)
            return None if repeated is None else self.sliced(repeated)
        part = builtin_part(other)
        if op == "+" and isinstance(part, SequenceValue) and part.kind == self.kind:
            left, right = (part, self) if reverse else (self, part)
            return self.joined(left.all_items(frame) + right.all_items(frame), left, right)
        return None

    def repeated(self, frame: Frame, times: Value) -> list[Value] | None:
        """The items, repeated; None when `times` is no int."""
        count = force_plain(frame, times)
        if not isinstance(count, int):
            return None
        if len(self.items) * count > LONGEST:
            return frame.break_graph("operation_unknown", f"a {self.kind} of {len(self.items) * count} items")
        return self.all_items(frame) * count

    def joined(self, items: list[Any], left: SequenceValue, right: SequenceValue) -> SequenceValue:
        return type(self)(items, cls=left.cls)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        other = builtin_part(other)
        if not isinstance(other, SequenceValue) or other.kind != self.kind:
            return None
        compared = list(self.all_items(frame)), list(other.all_items(frame))
        found = compare_sequences(frame, op, *compared)
        if self.items != compared[0] or other.items != compared[1]:
            frame.break_graph("operation_unknown", f"comparison of a {self.kind} changes it")
        return found

    def as_graph_arg(self, frame: Frame) -> Any:
        return [i.as_graph_arg(frame) for i in self.all_items(frame)]

    def loaded_items(self, emit: Emitter, start: int = 0) -> list[str]:
        """Expressions of the items from `start` on."""
        return [emit.source(i.source) if type(i) is Pending else emit.load(i) for i in self.items[start:]]

    kind = "sequence"


MAX_REWRITTEN_ITEMS = 1000
"""So many items of an existing container are written in its place at most; more are a lot of code for a change of one."""


class MutableSequenceValue(SequenceValue):
    """A list or deque; knows whether its changes so far were appends only."""

    maxlen: int | None = None
    """The most items that it keeps; None where there is no limit."""

    def __init__(self, items: Iterable[Any], source: Any = None, cls: type = list) -> None:
        super().__init__(items, source, cls)
        self.original = tuple(self.items) if source is not None else ()
        self.kept = len(self.items)
        self.filled = False  # set by a change that leaves items; sort looks at it
        self.looked = source is None

    def look(self, frame: Frame) -> None:
        if not self.looked:
            self.looked = True
            frame.guard("LENGTH", self.source, len(self.original))

    def changed(self, frame: Frame, first: int) -> None:
        """Logs a change at or after position `first`."""
        self.kept = min(self.kept, first)
        self.filled |= bool(self.items)
        if first < len(self.original):
            self.look(frame)
        if self.mutability is EXISTING:
            self.may_drop(frame, first)
            if self.kept < len(self.original) > MAX_REWRITTEN_ITEMS:
                what = f"a change inside of a {self.kind} of {len(self.original)} items, which would all be written anew"
                frame.break_graph("side_effect_unknown", what)
            frame.mutations.contents(self)

    def may_drop(self, frame: Frame, first: int) -> None:
        """Items at or after position `first` may go: where that ends a life of which there is something to see, it is due now."""
        if first < len(self.original):
            drop_reference(frame, [item.obj for item in self.original], self.source, True)

    def resized(self, frame: Frame, first: int) -> None:
        """Logs that items came or went at or after position `first`."""
        self.state += 1
        self.changed(frame, first)

    def is_unchanged(self) -> bool:
        return self.kept == len(self.original) == len(self.items)

    def rearranged(self, frame: Frame) -> None:
        """Logs a change of which the outcome depends on how many items there were."""
        self.look(frame)
        self.resized(frame, 0)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        index = sequence_index(frame, key, self.kind)
        if isinstance(index, slice) or index >= 0 or -index > len(self.items):
            self.look(frame)
        if isinstance(index, slice):
            try:
                self.items[index] = iterate_all(frame, value)
            except ValueError as error:
                frame.raise_new(ValueError, *error.args)
            self.rearranged(frame)
            return
        try:
            self.items[index] = value
        except IndexError:
            frame.raise_new(IndexError, f"{self.cls.__name__} assignment index out of range")
        self.changed(frame, index % len(self.items))

    def delitem(self, frame: Frame, key: Value) -> None:
        index = sequence_index(frame, key, self.kind)
        self.look(frame)
        try:
            del self.items[index]
        except IndexError:
            frame.raise_new(IndexError, f"{self.cls.__name__} assignment index out of range")
        self.rearranged(frame)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if op == "+=" and not reverse:
            CALLS[list, "extend"].handler(frame, self, other)
            return self
        if op == "*=" and not reverse:
            repeated = self.repeated(frame, other)
            if repeated is None:
                return None
            self.items[:] = repeated
            self.rearranged(frame)
            return self
        return super().binary(frame, op, other, reverse)

    def replay(self, emit: Emitter) -> None:
        """Brings the existing object to the traced state."""
        name = emit.temp(emit.source(self.source))
        if self.kept < len(self.original):
            self.replay_all(emit, name, self.loaded_items(emit))
        elif added := self.loaded_items(emit, self.kept):  # the others may not be there: the length need not be guarded
            emit.line(f"{emit.known(self.cls)}.extend({name}, ({', '.join(added)},))")
        elif self.state:
            self.replay_nothing(emit, name)

    def replay_all(self, emit: Emitter, name: str, items: list[str]) -> None:
        """Writes the items, given as expressions, into the existing object."""
        raise NotImplementedError

    def replay_nothing(self, emit: Emitter, name: str) -> None:
        """Changes the existing object and changes it back."""
        raise NotImplementedError

    two_phase = True

    def fill(self, emit: Emitter, name: str) -> None:
        items = self.loaded_items(emit)
        if items:
            emit.line(f"{name}.extend(({', '.join(items)},))")


class ListValue(MutableSequenceValue):
    """A list."""

    kind = "list"
    rows = (list, Sequence)

    def reload(self, emit: Emitter) -> str:
        return "[]"

    def replay_all(self, emit: Emitter, name: str, items: list[str]) -> None:
        emit.line(f"{emit.const(list)}.__setitem__({name}, {emit.const(slice(None))}, [{', '.join(items)}])")

    def replay_nothing(self, emit: Emitter, name: str) -> None:
        """What came has gone: whoever sorts the list notices."""
        emit.line(f"{emit.const(list)}.append({name}, None)")
        emit.line(f"{emit.const(list)}.pop({name})")


class DequeValue(MutableSequenceValue):
    """A collections.deque."""

    kind = "deque"
    rows = (collections.deque, Sequence)

    def __init__(
        self, items: Iterable[Any], source: Any = None, cls: type = collections.deque, maxlen: int | None = None
    ) -> None:
        super().__init__(items, source, cls)
        self.maxlen = maxlen

    def changed(self, frame: Frame, first: int) -> None:
        if self.maxlen is not None:
            self.look(frame)
        if self.maxlen is not None and len(self.items) > self.maxlen:
            del self.items[: len(self.items) - self.maxlen]
            first = 0
        super().changed(frame, first)

    def make(self, items: Iterable[Any]) -> Any:
        return collections.deque(items, self.maxlen)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "maxlen":
            if self.source is not None:
                frame.guard("CONSTANT" if self.maxlen is not None else "IS_NONE", Attr(self.source, "maxlen"), self.maxlen)
            return ConstantValue(self.maxlen)
        return super().getattr(frame, name)

    def getitem(self, frame: Frame, key: Value) -> Value:
        if issubclass(key.python_type(), slice):
            return frame.raise_new(TypeError, "sequence index must be integer, not 'slice'")
        return super().getitem(frame, key)

    def sliced(self, items: list[Any]) -> SequenceValue:
        dropped = 0 if self.maxlen is None else max(len(items) - self.maxlen, 0)
        return DequeValue(items[dropped:], maxlen=self.maxlen)

    def joined(self, items: list[Any], left: SequenceValue, right: SequenceValue) -> SequenceValue:
        return left.sliced(items)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(collections.deque)}((), {self.maxlen})"

    def replay_nothing(self, emit: Emitter, name: str) -> None:
        """What came has gone: whoever goes over the deque notices. A full one would lose an item to what comes."""
        cls = emit.const(collections.deque)
        if self.items and self.maxlen is not None:
            emit.line(f"{cls}.append({name}, {cls}.pop({name}))")
        else:
            emit.line(f"{cls}.append({name}, None)")
            if self.maxlen != 0:
                emit.line(f"{cls}.pop({name})")

    def replay_all(self, emit: Emitter, name: str, items: list[str]) -> None:
        cls = emit.const(collections.deque)
        emit.line(f"{cls}.clear({name})")
        emit.line(f"{cls}.extend({name}, [{', '.join(items)}])")


class TupleValue(SequenceValue, AbstractTuple):
    """A tuple, a namedtuple, a torch.Size, or a structure that torch functions return."""

    kind = "tuple"
    rows = (tuple, Sequence)
    constructor_text = True

    def __init__(self, items: Iterable[Any], source: Any = None, cls: type = tuple, obj: Any = None) -> None:
        super().__init__(items, source, cls)
        self.mutability = None
        self.obj = obj  # the tuple itself, where it exists

    def is_fixed(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return (
            self.cls is tuple
            and self.source is None
            and all(type(i) is not Pending and i.is_constant() and i.source is None for i in self.items)
        )

    def constant(self) -> Any:
        return tuple(i.constant() for i in self.items)

    def same_object(self, other: Value) -> bool | None:
        if self is other:
            return True
        if isinstance(other, TupleValue) and (self.source is None and other.source is None) and not (self.items or other.items):
            return True
        return isinstance(other, TupleValue) and self.obj is not None and self.obj is other.obj

    def make(self, items: Iterable[Any]) -> Any:
        if hasattr(self.cls, "_make"):
            return self.cls._make(items)
        return self.cls(items)

    def sliced(self, items: list[Any]) -> SequenceValue:
        return TupleValue(items, cls=torch.Size if self.cls is torch.Size else tuple)

    def joined(self, items: list[Any], left: SequenceValue, right: SequenceValue) -> SequenceValue:
        size = left.cls is torch.Size or right.cls is torch.Size
        return TupleValue(items, cls=torch.Size if size else tuple)

    def hash_key(self, frame: Frame) -> Any:
        return tuple(i.hash_key(frame) for i in self.all_items(frame))

    def own_hash(self, frame: Frame) -> int | None:
        key = self.hash_key(frame)
        return hash(key) if has_user_key(key) and is_hashed_alike(key) else None

    def getattr(self, frame: Frame, name: str) -> Value:
        fields = field_names(self.cls)
        own = self.user_defined(name)
        if name in fields and not own:
            return self.item(frame, fields.index(name))
        if name in ("_fields", "_field_defaults") and hasattr(self.cls, "_fields"):
            return literal(frame, getattr(self.cls, name))
        if own:
            return bind_class_attribute(frame, self, self.cls, name)
        return super().getattr(frame, name)

    def user_defined(self, name: str) -> bool:
        """Whether the class of a namedtuple has a Python method or property of that name, beside those that namedtuple makes."""
        if not hasattr(self.cls, "_fields") or (tuple, name) in CALLS:
            return False
        static, _ = lookup_class(self.cls, name)
        return isinstance(static, (types.FunctionType, property, classmethod, staticmethod))

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.user_defined(name):
            return self.getattr(frame, name).call(frame, args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def as_graph_arg(self, frame: Frame) -> Any:
        items = [i.as_graph_arg(frame) for i in self.all_items(frame)]
        return self.cls._make(items) if hasattr(self.cls, "_make") else tuple(items)

    def reload(self, emit: Emitter) -> str:
        if self.obj is not None:
            return emit.known(self.obj)
        items = self.loaded_items(emit)
        if items and self.is_constant():
            return f"(*[{', '.join(items)}],)"  # a display of constants would be one constant
        display = "(" + "".join(f"{i}, " for i in items) + ")"
        if self.cls is tuple:
            return display
        if hasattr(self.cls, "_make"):
            return f"{emit.const(tuple)}.__new__({emit.known(self.cls, self.cls.__name__)}, {display})"
        return f"{emit.known(self.cls, self.cls.__name__)}({display})"


def constant_of_code(frame: Frame, obj: Any) -> Value:
    """The value of a constant of a code object. A tuple is the same one each time."""
    if type(obj) is not tuple:
        return literal(frame, obj)
    found = frame.memory.tuples.get(id(obj))
    if found is None:
        found = frame.memory.tuples[id(obj)] = TupleValue([constant_of_code(frame, item) for item in obj], obj=obj)
    return found


_OF_RECORDS = frozenset({"__new__", "__repr__", "__str__", "__format__", "__getnewargs__", "__reduce__", "__replace__"})
"""What a namedtuple defines, and what is never asked of a TupleValue."""


def is_record(cls: type) -> bool:
    """Whether the class is a namedtuple, or made of one, whose instances are tuples and nothing else: no operator or hook is its own, and
    no attribute can be set."""
    if not issubclass(cls, tuple) or not hasattr(cls, "_fields") or cls.__dictoffset__:
        return False
    own = {n: static for c in cls.__mro__[: cls.__mro__.index(tuple)] for n, static in attributes_of(c).items()}
    return not any(
        name.startswith("__") and name not in _OF_RECORDS and isinstance(static, types.FunctionType)
        for name, static in own.items()
    )


def field_names(cls: type) -> Sequence[str]:
    """Of a namedtuple, or a structure that torch functions return (torch.return_types.*)."""
    names: Sequence[str] = getattr(cls, "_fields", ())
    return cls.__match_args__ if cls.__module__ == "torch.return_types" else names  # type: ignore[attr-defined]


MUTATED = "deque mutated during iteration"
LONGEST = 1 << 20  # items of a sequence that is made while tracing
NONE = ConstantValue(None)


make.provide(tuple=TupleValue)
