"""Mappings: dict, OrderedDict, defaultdict, Counter-like subclasses without their own behaviour, mappingproxy, and dict views.

Keys are looked up by `hash_key`. An existing dict is read lazily: an item when it is asked for, the set of keys when somebody
iterates, counts, or changes it.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from ...errors import NotPlain
from ...guards.classes import lookup_class
from ...guards.kinds import items_in_order, weak_key
from ...sources import Const, DictItem, DictValueAt, FrameGlobals
from ..protocol.binding import is_callable
from ..protocol.calls import method
from ..protocol.constant import ConstantValue, plain
from ..protocol.finalizers import drop_reference, refuse_to_drop
from ..protocol.iteration import each_of, iterate_all
from ..protocol.keys import (
    among,
    behind,
    by_identity,
    hashed_here,
    held_key,
    is_new,
    key_of_existing,
    simple_key,
    wrap_key,
)
from ..protocol.native import NativeValue
from ..protocol.operators import compare_sequences, equal, is_none_of, is_open_int
from ..protocol.user_keys import MOST_KEYS, FindsItsKeys, has_user_key, refuse_rebuilding_user_keys, refuse_user_keys
from ..protocol.value import EXISTING, NEW, Emitter, Frame, SymbolicRaise, Value, builtin_part
from .sequence import NONE, Pending, TupleValue
from .table_iterators import DictIterator

MISSING = object()


def touched_name(frame: Frame, table: dict[str, Any], name: str) -> Any:
    """What the program left at a name of a table of globals: a value, None when there is none, MISSING when the table is as it was.
    The program may have the same dict in its hands, as ns of exec(code, ns) or module.__dict__."""
    known = frame.memory.memo.get(id(table))
    if type(known) is DictValue:
        return known.find(frame, frame.constant(name))
    if known is not None:
        frame.break_graph("side_effect_unknown", f"globals that are {known.describe()}")
    return frame.memory.globals_written.get((id(table), name), MISSING)


def write_name(frame: Frame, table: dict[str, Any], name: str, value: Value | None) -> None:
    """Writes at a name of a table of globals (None: deletes it); replayed after the graph."""
    known = frame.memory.memo.get(id(table))
    if known is not None:  # the program has the dict itself, too
        key = frame.constant(name)
        known.delitem(frame, key) if value is None else known.setitem(frame, key, value)
        return
    if (id(table), name) not in frame.memory.globals_written:
        drop_reference(frame, table, FrameGlobals() if table is frame.memory.globals else Const(table, "globals"), name)
    frame.memory.globals_written[id(table), name] = value
    frame.memory.keep.append(table)

    def write(emit: Emitter) -> None:
        place = emit.const(table, "globals")
        gone = f"{place}.pop({name!r}, None)"  # the program may have made it itself
        emit.line(gone if value is None else f"{place}[{name!r}] = {emit.load(value)}")

    frame.log_effect(("global", id(table), name), write)


class DictValue(NativeValue):
    """A dict or one of its built-in relatives. `entries`: hash key -> [key Value or Pending, value Value or Pending]."""

    rows = (dict,)
    owner: Value | None = None  # the object of a subclass that this is the built-in part of
    iterates_in_c = True
    is_holder = True

    def __init__(self, source: Any = None, cls: type = dict, obj: Any = None, default_factory: Value | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.entries: dict[Hashable, list[Any]] = {}
        self.mutability = NEW if source is None else EXISTING
        self.default_factory = default_factory
        self.obj = obj
        self.keys_guarded = source is None
        self.lacking: set[Hashable] = set()
        self.changes: dict[Hashable, Any] = {}
        self.cleared = False  # before the changes
        self.structure = 0  # counts insertions and removals of keys, for the iterators
        self.odd = False  # some key has an equality of its own, which a lookup would run
        self.attributes: dict[str, Value] = {}  # of a new OrderedDict, which has a __dict__
        if obj is not None:
            own_values = lookup_class(type(obj), "values")[1] not in (dict, collections.OrderedDict)
            for index, (key, item) in enumerate(items_in_order(obj)):
                simple = simple_key(key)
                self.odd = self.odd or not simple
                place = DictItem(source, weak_key(key)) if simple or own_values else DictValueAt(source, index)
                self.entries[key_of_existing(key)] = [Pending(key, None), Pending(item, place)]

    def held(self) -> Iterable[Any]:
        return itertools.chain.from_iterable(self.entries.values())

    def whole(self) -> Value:
        """The object that methods of C which ask it for others of its methods ask."""
        return self if self.owner is None else self.owner

    # --- keys ---------------------------------------------------------------------------------------------------
    def guard_keys(self, frame: Frame) -> None:
        """Somebody looked at the set of keys."""
        if not self.keys_guarded:
            self.keys_guarded = True
            frame.guard("DICT_KEYS", self.source, tuple(held_key(frame, key) for key, _ in items_in_order(self.obj)))

    def unordered_names(self) -> list[str] | None:
        """The keys of an existing dict of names that nothing has looked at or changed so far; None for others."""
        if self.source is None or self.cls is not dict or self.keys_guarded or self.changes or self.obj is None:
            return None
        return list(self.obj) if all(type(key) is str for key in self.obj) else None

    def key_value(self, frame: Frame, hashed: Hashable) -> Value:
        entry = self.entries[hashed]
        if type(entry[0]) is Pending:
            entry[0] = wrap_key(frame, entry[0].obj)
        key: Value = entry[0]
        return key

    def find(self, frame: Frame, key: Value) -> Value | None:
        """The value at a key Value, or None; guards presence or absence."""
        return None if self.has_none_of(frame, key) else self.find_hashed(frame, self.hashed(frame, key))

    def has_none_of(self, frame: Frame, key: Value) -> bool:
        """Whether no key can be this int, which changes from call to call."""
        return not self.odd and is_open_int(key) and is_none_of(frame, key, self.all_keys(frame))

    def hashed(self, frame: Frame, key: Value) -> Any:
        """What `entries` has the key under."""
        if self.odd:
            self.read_odd_keys(frame)
        is_existing = self.mutability is EXISTING
        hashed = hashed_here(frame, key) if is_existing else by_identity(key.hash_key(frame))
        return among(frame, hashed, self.entries, is_existing)

    def read_odd_keys(self, frame: Frame) -> None:
        """Asks the keys that define equality themselves for their hashes. Those that the dict keeps may be of other times."""
        check = FindsItsKeys(frame.services.call_disabled)
        if len(self.entries) > MOST_KEYS or self.changes or self.cleared:
            frame.break_graph("unhashable_value", f"{self.describe()} has keys that define equality themselves")
        self.guard_keys(frame)
        entries = {hashed_here(frame, self.key_value(frame, hashed)): entry for hashed, entry in self.entries.items()}
        if len(entries) < len(self.entries) or not check(self.obj):
            frame.break_graph("unhashable_value", f"{self.describe()} has keys that were changed while they were keys")
        frame.guard("RELATION", self.source, (check, (self.source,)))
        self.entries, self.odd = entries, False

    def find_hashed(self, frame: Frame, hashed: Hashable) -> Value | None:
        entry = self.entries.get(hashed)
        if entry is None:
            self.guard_absence(frame, hashed)
            return None
        return self.item(frame, hashed)

    def item(self, frame: Frame, hashed: Hashable) -> Value:
        """The value at a key that is there."""
        entry = self.entries[hashed]
        if type(entry[1]) is Pending:
            entry[1] = frame.wrap(entry[1].obj, entry[1].source)
        value: Value = entry[1]
        return value

    def guard_absence(self, frame: Frame, hashed: Hashable) -> None:
        if self.keys_guarded or hashed in self.lacking or hashed in self.changes or is_new(hashed):
            return
        if has_user_key(hashed):  # which any other key may equal
            self.guard_keys(frame)
            return
        self.lacking.add(hashed)
        frame.guard("DICT_LACKS", self.source, weak_key(behind(hashed)))

    def has_at(self, frame: Frame, hashed: Hashable, value: Value) -> bool:
        """Whether the item at a key that is there is this value already, as after `self.count += 1` of a module's buffer."""
        item = self.entries[hashed][1]
        if type(item) is Pending and item.obj is not None and item.obj is getattr(value, "obj", None):
            item = self.item(frame, hashed)
        return item is value

    def store(self, frame: Frame, key: Value, value: Value) -> None:
        """self[key] = value"""
        hashed = self.hashed(frame, key)
        entry = self.entries.get(hashed)
        if entry is None:
            self.structure += 1
            self.entries[hashed] = [key, value]
        elif self.has_at(frame, hashed, value):
            return
        else:
            self.may_drop(frame, hashed)
            entry[1] = value
        self.log(frame, hashed, "add" if entry is None else "set")

    def remove(self, frame: Frame, hashed: Hashable) -> None:
        """del self[key], for a key that is there."""
        if self.mutability is EXISTING:
            self.guard_keys(frame)
        self.may_drop(frame, hashed)
        key = self.key_value(frame, hashed)
        del self.entries[hashed]
        self.structure += 1
        self.log(frame, hashed, "delete", key)

    def may_drop(self, frame: Frame, hashed: Hashable) -> None:
        """An item goes: where that may end its life, or its key's, what is seen of that is due now, and not when changes are replayed."""
        if self.mutability is not EXISTING:
            return
        item = self.entries[hashed][1]
        if type(item) is not Pending and item.mutability is NEW:
            refuse_to_drop(frame, item)
        elif self.cleared or hashed in self.changes:
            return
        elif type(hashed) is str:
            drop_reference(frame, self.obj, self.source, hashed)
        else:
            drop_reference(frame, self.obj, self.source, True)

    def log(self, frame: Frame, hashed: Hashable, what: str, key: Value | None = None) -> None:
        if self.mutability is EXISTING:
            refuse_user_keys(frame, [hashed])
            before = self.changes.get(hashed, True)
            if what != "set":  # one that is set again stays where it is
                self.changes.pop(hashed, None)
            self.changes[hashed] = before if key is None else key
            frame.mutations.contents(self)

    def all_keys(self, frame: Frame) -> list[Value]:
        self.guard_keys(frame)
        return [self.key_value(frame, h) for h in self.entries]

    def all_values(self, frame: Frame) -> list[Value]:
        self.guard_keys(frame)
        return [self.item(frame, h) for h in list(self.entries)]

    def all_items(self, frame: Frame) -> list[tuple[Value, Value]]:
        self.guard_keys(frame)
        return [(self.key_value(frame, h), self.item(frame, h)) for h in list(self.entries)]

    # --- operations ---------------------------------------------------------------------------------------------
    def as_plain(self) -> Any:
        made = {}
        for key, value in self.entries.values():
            if type(key) is Pending or type(value) is Pending:
                raise NotPlain(self)
            made[plain(key)] = plain(value)
        if self.cls is collections.defaultdict or not self.keys_guarded:
            raise NotPlain(self)
        return made if self.cls is dict else self.cls(made)

    def unread(self) -> int:
        return sum(type(part) is Pending for entry in self.entries.values() for part in entry) + (not self.keys_guarded)

    def truth(self, frame: Frame) -> bool:
        self.guard_keys(frame)
        return bool(self.entries)

    def length(self, frame: Frame) -> Value:
        self.guard_keys(frame)
        return ConstantValue(len(self.entries))

    def unpack(self, frame: Frame) -> list[Value]:
        return self.all_keys(frame)

    def iterate(self, frame: Frame) -> Value:
        return self.iterator(frame, "keys")

    def iterator(self, frame: Frame, kind: str) -> DictIterator:
        """An iterator over keys, values or items, which notices when keys come or go."""
        self.guard_keys(frame)
        return DictIterator(self, kind, frame.progress.step)

    def contains(self, frame: Frame, item: Value) -> Value:
        if self.has_none_of(frame, item):
            return ConstantValue(False)
        hashed = self.hashed(frame, item)
        if hashed not in self.entries:
            self.guard_absence(frame, hashed)
            return ConstantValue(False)
        if not self.keys_guarded:
            self.find_hashed(frame, hashed)
        return ConstantValue(True)

    def getitem(self, frame: Frame, key: Value) -> Value:
        found = self.find(frame, key)
        if found is not None:
            return found
        if self.default_factory is not None:
            made = self.default_factory.call(frame, [], {})
            self.whole().setitem(frame, key, made)
            return made
        return frame.raise_new(KeyError, key)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        self.store(frame, key, value)

    def delitem(self, frame: Frame, key: Value) -> None:
        hashed = self.hashed(frame, key)
        if hashed not in self.entries:
            self.guard_absence(frame, hashed)
            frame.raise_new(KeyError, key)
        self.remove(frame, hashed)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return NONE if self.default_factory is None else self.default_factory
        if name in self.attributes:
            return self.attributes[name]
        return super().getattr(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if self.cls is not collections.OrderedDict or self.mutability is not NEW or hasattr(self.cls, name):
            return super().setattr(frame, name, value)
        self.attributes[name] = value
        return None

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.getattr(frame, name).call(frame, args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if op == "|=" and not reverse:
            update(frame, self, other)
            return self
        part = builtin_part(other)
        if not isinstance(part, DictValue) or op != "|":
            return None
        left, right = (other, self.whole()) if reverse else (self.whole(), other)
        kind = self if reverse and part.cls is not self.cls or not reverse else part
        made = DictValue(cls=kind.cls, default_factory=kind.default_factory)
        update(frame, made, left)
        update(frame, made, right)
        return made

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        other = builtin_part(other)
        if op not in ("==", "!=") or not isinstance(other, DictValue):
            return None
        if self.odd or other.odd or collections.OrderedDict is self.cls is other.cls:
            return self.compare_carefully(frame, op, other)
        self.guard_keys(frame)
        other.guard_keys(frame)
        same = self.entries.keys() == other.entries.keys() and all(
            equal(frame, self.item(frame, h), other.item(frame, h)) for h in self.entries
        )
        return ConstantValue(same == (op == "=="))

    def compare_carefully(self, frame: Frame, op: str, other: DictValue) -> Value:
        """Two OrderedDicts are equal when their order is, too; odd keys are not compared at all."""
        if self.odd or other.odd:
            return frame.break_graph("operation_unknown", "comparison of dicts with keys that define equality themselves")
        pairs: list[list[Value]] = [[TupleValue(pair) for pair in mapping.all_items(frame)] for mapping in (self, other)]
        return compare_sequences(frame, op, *pairs)

    def as_graph_arg(self, frame: Frame) -> Any:
        return {plain(k): v.as_graph_arg(frame) for k, v in self.all_items(frame)}

    # --- leaving the trace --------------------------------------------------------------------------------------
    def load_key(self, emit: Emitter, key: Any) -> str:
        return emit.known(key.obj) if type(key) is Pending else emit.load(key)

    def load_item(self, emit: Emitter, value: Any) -> str:
        return emit.source(value.source) if type(value) is Pending else emit.load(value)

    two_phase = True

    def reload(self, emit: Emitter) -> str:
        refuse_rebuilding_user_keys(self.entries)
        if self.cls is dict:
            return "{}"
        cls = emit.known(self.cls, self.cls.__name__)
        if self.cls is collections.defaultdict:
            return f"{cls}({emit.load(self.default_factory) if self.default_factory else 'None'})"
        return f"{cls}()"

    def fill(self, emit: Emitter, name: str) -> None:
        for key, value in self.entries.values():
            emit.line(f"{name}[{self.load_key(emit, key)}] = {self.load_item(emit, value)}")
        for key, value in self.attributes.items():
            emit.line(f"{name}.__dict__[{key!r}] = {emit.load(value)}")

    def replay(self, emit: Emitter) -> None:
        """Brings the existing object to the traced state, key by key, in the order in which they came, or came back."""
        name = emit.temp(emit.source(self.source))
        own = self.cls if type(self.obj) is not self.cls else None  # a user's subclass: past its own __setitem__
        if self.cleared:
            emit.line(f"{emit.const(own)}.clear({name})" if own else f"{name}.clear()")
        for hashed, change in self.changes.items():
            if change is not True:
                key = self.load_key(emit, change)
                there = (
                    f"{emit.const(dict)}.__contains__({name}, {key})"  # which pop() of an OrderedDict asks the program's class
                )
                emit.line(f"{there} and {emit.const(own)}.__delitem__({name}, {key})" if own else f"{name}.pop({key}, None)")
            if hashed in self.entries:
                entry = self.entries[hashed]
                key, item = self.load_key(emit, entry[0]), self.load_item(emit, entry[1])
                emit.line(f"{emit.const(own)}.__setitem__({name}, {key}, {item})" if own else f"{name}[{key}] = {item}")


def factory_of(frame: Frame, given: Value) -> Value | None:
    """What makes the missing items of a defaultdict, as its constructor takes it; None for nothing."""
    if given.is_constant() and given.constant() is None:
        return None
    if not is_callable(given):
        return frame.raise_new(TypeError, "first argument must be callable or None")
    return given


def dict_of(frame: Frame, pairs: Iterable[tuple[str | Value, Value]]) -> DictValue:
    """A new dict value from (str or key Value, Value) pairs."""
    made = DictValue()
    for key, value in pairs:
        made.store(frame, ConstantValue(key) if isinstance(key, str) else key, value)
    return made


@method(dict, "get")
def get(frame: Frame, self: DictValue, key: Value, default: Value = NONE) -> Value:
    found = self.find(frame, key)
    return default if found is None else found


@method(dict, "setdefault")
def setdefault(frame: Frame, self: DictValue, key: Value, default: Value = NONE) -> Value:
    if self.cls is collections.OrderedDict and self.owner is not None:
        if self.owner.contains(frame, key).truth(frame):
            return self.owner.getitem(frame, key)
        self.owner.setitem(frame, key, default)
        return default
    found = self.find(frame, key)
    if found is not None:
        return found
    self.store(frame, key, default)
    return default


@method(dict, "pop")
def pop(frame: Frame, self: DictValue, key: Value, default: Value | None = None) -> Value:
    found = self.find(frame, key)
    if found is not None:
        self.remove(frame, self.hashed(frame, key))
        return found
    if default is None:
        return frame.raise_new(KeyError, key)
    return default


@method(dict, "popitem")
def popitem(frame: Frame, self: DictValue, last: Value = ConstantValue(True)) -> Value:  # noqa: B008
    if not self.truth(frame):
        said = "dictionary is empty" if self.cls is collections.OrderedDict else "popitem(): dictionary is empty"
        return frame.raise_new(KeyError, said)
    hashed = list(self.entries)[-1 if last.truth(frame) else 0]
    pair = TupleValue([self.key_value(frame, hashed), self.item(frame, hashed)])
    self.remove(frame, hashed)
    return pair


@method(dict, "clear")
def clear(frame: Frame, self: DictValue) -> Value:
    self.guard_keys(frame)
    for hashed in self.entries:
        self.may_drop(frame, hashed)
    self.structure += len(self.entries)
    self.entries.clear()
    if self.mutability is EXISTING:
        self.cleared = True
        self.changes.clear()
        frame.mutations.contents(self)
    return NONE


@method(dict, "copy", "__copy__")
def copy(frame: Frame, self: DictValue) -> Value:
    made = DictValue(cls=self.cls, default_factory=self.default_factory)
    for key, value in pairs_of_mapping(frame, self.whole()):
        made.store(frame, key, value)
    return made


@method(dict, "update", "__init__")
def update(frame: Frame, self: DictValue, other: Value | None = None, /, **kwargs: Value) -> Value:
    is_ordered = self.cls is collections.OrderedDict
    taker = self.whole() if is_ordered else self
    if other is not None:
        for key, value in pairs_of(frame, other, is_ordered):
            taker.setitem(frame, key, value)
    for name, value in kwargs.items():
        taker.setitem(frame, ConstantValue(name), value)
    return NONE


def pairs_of_mapping(frame: Frame, mapping: Value, asked: bool = False) -> Iterator[tuple[Value, Value]]:
    """(key, value) pairs of a mapping, each as it is taken: of dicts that iterate as dicts do what they hold, unless own classes of dicts
    are `asked`, too; of others what their keys() and items are."""
    part = builtin_part(mapping)
    as_a_dict = not asked and lookup_class(mapping.python_type(), "__iter__")[1] is dict
    if isinstance(part, DictValue) and (part is mapping or as_a_dict):
        yield from list(part.all_items(frame))
        return
    for key in each_of(frame, mapping.call_method(frame, "keys", [], {})):
        yield key, mapping.getitem(frame, key)


def pairs_of(frame: Frame, other: Value, asked: bool = False) -> Iterator[Sequence[Value]]:
    """(key, value) pairs of a mapping or of an iterable of pairs, each as it is taken."""
    if hasattr(other.python_type(), "keys"):
        yield from pairs_of_mapping(frame, other, asked)
        return
    for number, given in enumerate(each_of(frame, other)):
        try:
            pair = iterate_all(frame, given)
        except SymbolicRaise as raised:
            if not issubclass(raised.value.python_type(), TypeError):
                raise
            frame.raise_new(TypeError, f"cannot convert dictionary update sequence element #{number} to a sequence")
        if len(pair) != 2:
            frame.raise_new(ValueError, f"dictionary update sequence element #{number} has length {len(pair)}; 2 is required")
        yield pair


@method(dict, "move_to_end")
def move_to_end(frame: Frame, self: DictValue, key: Value, last: Value = ConstantValue(True)) -> Value:  # noqa: B008
    value = self.getitem(frame, key)
    hashed = self.hashed(frame, key)
    if last.truth(frame):
        self.remove(frame, hashed)
        self.store(frame, key, value)
        return NONE
    if self.mutability is EXISTING:
        return frame.break_graph("side_effect_unknown", "OrderedDict.move_to_end(last=False) of an existing dict")
    entry = self.entries.pop(hashed)
    self.entries = {hashed: entry, **self.entries}
    self.structure += 1
    return NONE


@method(dict, "fromkeys")
def fromkeys(frame: Frame, self: DictValue, keys: Value, value: Value = NONE) -> Value:
    made = DictValue(cls=self.cls)
    for key in iterate_all(frame, keys):
        made.store(frame, key, value)
    return made
