"""Methods of lists, deques, tuples and all sequences: handler(frame, self, *args, **kwargs)."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from ...bytecode.facts import VERSION
from ..protocol.calls import method
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.iteration import each_of, iterate_all
from ..protocol.operators import binary
from ..protocol.value import Frame, Value, builtin_part
from .mapping import DictValue
from .ranges import sequence_index
from .rows_iteration import is_descending, sort_values
from .sequence import MUTATED, NONE, DequeValue, MutableSequenceValue, SequenceValue, TupleValue, field_names


@method(list, "__init__")
@method(collections.deque, "__init__")
def init(frame: Frame, self: MutableSequenceValue, items: Value | None = None) -> Value:
    if self.kind == "deque":
        return frame.break_graph("call_unknown", "deque.__init__")
    clear(frame, self)
    return NONE if items is None else extend(frame, self, items)


@method(list, "append")
@method(collections.deque, "append")
def append(frame: Frame, self: MutableSequenceValue, item: Value) -> Value:
    self.items.append(item)
    self.resized(frame, len(self.items) - 1)
    return NONE


@method(list, "extend")
@method(collections.deque, "extend")
def extend(frame: Frame, self: MutableSequenceValue, items: Value) -> Value:
    for item in added_items(frame, self, items):
        append(frame, self, item)
    return NONE


def added_items(frame: Frame, self: MutableSequenceValue, items: Value) -> Iterable[Value]:
    """What is added to a list or deque, one at a time; itself is gone over before, and from 3.13 on a list is repeated."""
    if builtin_part(items) is not self:
        return each_of(frame, items, asks_length=self.kind == "list")
    return self.all_items(frame) if self.kind == "list" and VERSION >= (3, 13) else iterate_all(frame, items)


@method(collections.deque, "appendleft")
def appendleft(frame: Frame, self: DequeValue, item: Value) -> Value:
    self.items.insert(0, item)
    if self.maxlen is not None and len(self.items) > self.maxlen:
        del self.items[self.maxlen :]
    self.rearranged(frame)
    return NONE


@method(collections.deque, "popleft")
def popleft(frame: Frame, self: DequeValue) -> Value:
    return pop(frame, self, ConstantValue(0))


@method(collections.deque, "pop")
def pop_right(frame: Frame, self: DequeValue) -> Value:
    return pop(frame, self)


@method(list, "insert")
@method(collections.deque, "insert")
def insert(frame: Frame, self: MutableSequenceValue, index: Value, item: Value) -> Value:
    if self.kind == "deque" and self.maxlen is not None:
        self.look(frame)
        if len(self.items) >= self.maxlen:
            return frame.raise_new(IndexError, "deque already at its maximum size")
    self.items.insert(sequence_index(frame, index), item)
    self.rearranged(frame)
    return NONE


@method(list, "pop")
def pop(frame: Frame, self: MutableSequenceValue, index: Value = ConstantValue(-1)) -> Value:  # noqa: B008
    self.look(frame)
    if not self.items:
        return frame.raise_new(
            IndexError, f"pop from empty {self.cls.__name__}" if self.kind == "list" else "pop from an empty deque"
        )
    position = sequence_index(frame, index)
    if not -len(self.items) <= position < len(self.items):
        return frame.raise_new(IndexError, "pop index out of range")
    item = self.item(frame, position)
    del self.items[position]
    self.rearranged(frame)
    return item


@method(list, "remove")
@method(collections.deque, "remove")
def remove(frame: Frame, self: MutableSequenceValue, item: Value) -> Value:
    state = self.state
    position = next(self.found_at(frame, item, changed=IndexError), None)
    if self.kind == "deque" and self.state != state:
        return frame.raise_new(IndexError, MUTATED)
    if position is None:
        return frame.raise_new(ValueError, f"{self.kind}.remove(x): x not in {self.kind}")
    del self.items[position : position + 1]
    self.rearranged(frame)
    return NONE


@method(list, "clear")
@method(collections.deque, "clear")
def clear(frame: Frame, self: MutableSequenceValue) -> Value:
    self.items.clear()
    self.rearranged(frame)
    return NONE


@method(list, "reverse")
@method(collections.deque, "reverse")
def reverse(frame: Frame, self: MutableSequenceValue) -> Value:
    self.items.reverse()
    self.look(frame)
    self.changed(frame, 0)
    return NONE


@method(list, "copy", "__copy__")
@method(collections.deque, "copy", "__copy__")
def copy(frame: Frame, self: MutableSequenceValue) -> Value:
    return self.sliced(self.all_items(frame))


@method(collections.deque, "extendleft")
def extendleft(frame: Frame, self: DequeValue, items: Value) -> Value:
    for item in added_items(frame, self, items):
        appendleft(frame, self, item)
    return NONE


@method(collections.deque, "rotate")
def rotate(frame: Frame, self: DequeValue, steps: Value = ConstantValue(1)) -> Value:  # noqa: B008
    count = sequence_index(frame, steps)
    items = self.all_items(frame)
    if items:
        count %= len(items)
        self.items[:] = items[len(items) - count :] + items[: len(items) - count]
        self.rearranged(frame)
    return NONE


@method(list, "sort")
def sort(frame: Frame, self: MutableSequenceValue, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    descending = is_descending(frame, reverse)
    items = list(self.all_items(frame))
    self.items[:] = []  # as the program sees the list meanwhile
    self.filled = False
    try:
        sort_values(frame, items, key, descending)
    finally:
        modified = self.filled
        self.items[:] = items
        self.rearranged(frame)
    if modified:
        frame.raise_new(ValueError, "list modified during sort")
    return NONE


@method(Sequence, "index")
def index(frame: Frame, self: SequenceValue, item: Value, *bounds: Value) -> Value:
    limits = (
        slice(*(force_plain(frame, b) for b in bounds))
        if len(bounds) == 2
        else slice(force_plain(frame, bounds[0]) if bounds else None, None)
    )
    self.look(frame)
    start, stop, _ = limits.indices(len(self.items))
    for position in self.found_at(frame, item, start, stop if bounds[1:] else None):
        return ConstantValue(position)
    if self.kind == "tuple":
        return frame.raise_new(ValueError, "tuple.index(x): x not in tuple")
    return frame.raise_new(ValueError, f"{force_plain(frame, item)!r} is not in {self.kind}")


@method(Sequence, "count")
def count(frame: Frame, self: SequenceValue, item: Value) -> Value:
    return ConstantValue(sum(1 for _ in self.found_at(frame, item)))


@method(tuple, "numel")
def numel(frame: Frame, self: TupleValue) -> Value:
    total: Value = ConstantValue(1)
    for item in self.all_items(frame):
        total = binary(frame, "*", total, item)
    return total


@method(tuple, "_replace")
def replace(frame: Frame, self: TupleValue, **fields: Value) -> Value:
    names = field_names(self.cls)
    unknown = [name for name in fields if name not in names]
    if unknown:
        error = TypeError if VERSION >= (3, 13) else ValueError
        return frame.raise_new(error, f"Got unexpected field names: {unknown!r}")
    items = [fields.get(n, i) for n, i in zip(names, self.all_items(frame))]
    return TupleValue(items, cls=self.cls)


@method(tuple, "_asdict")
def asdict(frame: Frame, self: TupleValue) -> Value:
    made = DictValue()
    for name, item in zip(field_names(self.cls), self.all_items(frame)):
        made.store(frame, ConstantValue(name), item)
    return made
