"""Building, indexing and unpacking containers; formatting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ... import _C
from ...bytecode.code import Instruction
from ...bytecode.facts import VERSION
from ...bytecode.liveness import live_locals
from ...sources import Const
from ...values.number.deferred import DeferredValue, deferred_join
from ...values.plain.mapping import dict_of
from ...values.plain.ranges import SliceValue
from ...values.plain.sequence import NONE, ListValue, SequenceValue, TupleValue
from ...values.plain.sets import SetValue
from ...values.plain.text import joined_text, known_text
from ...values.protocol.iteration import each_of
from ...values.protocol.value import Emitter, Frame, Value
from ...values.torch.tensor import TensorValue
from ..frame import SymbolicFrame
from .calls import is_iterable, merged_pairs, refuse_starred, starred_pairs
from .table import displays, opcode, operators


@opcode("STORE_SUBSCR")
def store_subscr(frame: SymbolicFrame, instruction: Instruction) -> None:
    """container[key] = value"""
    value, container, key = frame.pop_many(3)
    if frame.recording.selecting and not isinstance(container, TensorValue):
        frame.break_graph("call_unknown", f"an item of {container.describe()} is stored in an arm of a condition on data")
    container.setitem(frame, key, value)


@opcode("BUILD_MAP")
def build_map(frame: SymbolicFrame, instruction: Instruction) -> None:
    """{k: v, ...}"""
    flat = frame.pop_many(2 * instruction.arg)
    frame.stack.append(dict_of(frame, list(zip(flat[::2], flat[1::2]))))


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: SymbolicFrame, instruction: Instruction) -> None:
    """{constant key: v, ...}"""
    keys = frame.stack.pop()
    names: list[Value] = getattr(keys, "constant_keys", keys.unpack)(frame)
    frame.stack.append(dict_of(frame, list(zip(names, frame.pop_many(instruction.arg)))))


@opcode("LIST_APPEND", "SET_ADD")
def add_item(frame: SymbolicFrame, instruction: Instruction) -> None:
    """list.append or set.add inside comprehensions and displays."""
    item = frame.stack.pop()
    method = "append" if instruction.opname == "LIST_APPEND" else "add"
    frame.stack[-instruction.arg].call_method(frame, method, [item], {})


@opcode("MAP_ADD")
def map_add(frame: SymbolicFrame, instruction: Instruction) -> None:
    """dict[key] = value inside comprehensions."""
    key, value = frame.pop_many(2)
    frame.stack[-instruction.arg].setitem(frame, key, value)


@opcode("LIST_EXTEND")
def list_extend(frame: SymbolicFrame, instruction: Instruction) -> None:
    """list.extend for displays with stars."""
    items = frame.stack.pop()
    target = frame.stack[-instruction.arg]
    if not is_iterable(items):
        frame.raise_new(TypeError, f"Value after * must be an iterable, not {_C.type_name(items.python_type())}")
    for item in each_of(frame, items, asks_length=True):
        target.call_method(frame, "append", [item], {})


@opcode("SET_UPDATE")
def set_update(frame: SymbolicFrame, instruction: Instruction) -> None:
    """set.update for displays with stars."""
    items = frame.stack.pop()
    target = frame.stack[-instruction.arg]
    if items.python_type() in (set, frozenset, dict):  # members of these get room at once, others one by one
        target.call_method(frame, "update", [items], {})
        return
    for item in items.unpack(frame):
        target.call_method(frame, "add", [item], {})


@opcode("DICT_UPDATE")
def dict_update(frame: SymbolicFrame, instruction: Instruction) -> None:
    """{**a, **b}"""
    other = frame.stack.pop()
    target = frame.stack[-instruction.arg]
    for key, value in starred_pairs(frame, other, lambda kind: frame.raise_new(TypeError, f"'{kind}' object is not a mapping")):
        target.setitem(frame, key, value)


@opcode("DICT_MERGE")
def dict_merge(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Keyword arguments from several mappings: a key twice is a TypeError."""
    other = frame.stack.pop()
    target = frame.stack[-instruction.arg]
    function = frame.stack[-instruction.arg - (2 if VERSION < (3, 13) else 3)]
    for key, value in merged_pairs(frame, function, other):
        if target.contains(frame, key).truth(frame):
            refuse_starred(frame, function, f"got multiple values for keyword argument '{key.constant()}'")
        target.setitem(frame, key, value)


STORES = ("STORE_FAST", "STORE_FAST_STORE_FAST")


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(frame: SymbolicFrame, instruction: Instruction) -> None:
    """a, b = value"""
    count = instruction.arg
    value = frame.stack.pop()
    if isinstance(value, SequenceValue) and (unread := unread_targets(frame, instruction.index + 1, count)):
        items = value.items_but(frame, unread)
    else:
        items = first_items(frame, value, count)
    if len(items) != count:
        text = (
            f"not enough values to unpack (expected {count}, got {len(items)})"
            if len(items) < count
            else f"too many values to unpack (expected {count})"
        )
        frame.raise_new(ValueError, text)
    frame.stack.extend(reversed(items))


def unread_targets(frame: SymbolicFrame, index: int, count: int) -> tuple[int, ...]:
    """Which of so many items go into local variables that nothing reads, as those of an unused name do: they need not be looked at."""
    stored: list[str] = []
    while len(stored) < count and frame.instructions[index].opname in STORES:
        value = frame.instructions[index].value
        stored += value if isinstance(value, tuple) else (value,)
        index += 1
    if len(stored) < count or len(set(stored)) < len(stored):
        return ()
    live = live_locals(frame.info, index)
    return tuple(place for place, name in enumerate(stored[:count]) if name not in live and name not in frame.cells)


def first_items(frame: SymbolicFrame, value: Value, count: int) -> list[Value]:
    """All items of a container; one more than `count` of an iterator, which may go on for ever."""
    check_unpackable(frame, value)
    if type(value).unpack is not Value.unpack:
        return value.unpack(frame)
    items: list[Value] = []
    iterator = value.iterate(frame)
    while len(items) <= count and (item := iterator.next_value(frame)) is not None:
        items.append(item)
    return items


def check_unpackable(frame: SymbolicFrame, value: Value) -> None:
    """Unpacking says in its own words that something cannot be iterated over."""
    if not is_iterable(value):
        frame.raise_new(TypeError, f"cannot unpack non-iterable {_C.type_name(value.python_type())} object")


def all_items(frame: SymbolicFrame, value: Value, before: int) -> list[Value]:
    """All items of a container; of an iterator `before` of them, and then what its own iter() goes over."""
    if type(value).unpack is not Value.unpack:
        return value.unpack(frame)
    iterator = value.iterate(frame)
    items: list[Value] = []
    while len(items) < before:
        item = iterator.next_value(frame)
        if item is None:
            return items
        items.append(item)
    return items + iterator.unpack(frame)


@opcode("UNPACK_EX")
def unpack_ex(frame: SymbolicFrame, instruction: Instruction) -> None:
    """a, *b, c = value"""
    before, after = instruction.arg & 255, instruction.arg >> 8
    value = frame.stack.pop()
    check_unpackable(frame, value)
    items = all_items(frame, value, before)
    if len(items) < before + after:
        frame.raise_new(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    middle = ListValue(items[before : len(items) - after])
    frame.stack.extend(reversed([*items[:before], middle, *items[len(items) - after :]]))


@opcode("GET_LEN")
def get_len(frame: SymbolicFrame, instruction: Instruction) -> None:
    """len(top), kept below (match statements)."""
    frame.stack.append(frame.stack[-1].length(frame))


_FORMATTERS = (None, str, repr, ascii)


@opcode("FORMAT_VALUE")
def format_value(frame: SymbolicFrame, instruction: Instruction) -> None:
    """One field of an f-string (up to 3.12)."""
    spec = frame.stack.pop() if instruction.arg & 4 else None
    value = convert(frame, frame.stack.pop(), _FORMATTERS[instruction.arg & 3])
    frame.stack.append(formatted(frame, value, spec))


@opcode("CONVERT_VALUE")
def convert_value(frame: SymbolicFrame, instruction: Instruction) -> None:
    """!s, !r, !a (3.13)"""
    frame.stack.append(convert(frame, frame.stack.pop(), _FORMATTERS[instruction.arg]))


class LazyText(Value):
    """An f-string field whose value is only known when the graph has run: fine as long as only the built text is passed on."""

    description = "a text written when the graph has run"
    cls = str

    def __init__(self, write: Callable[[Emitter], str]) -> None:
        super().__init__(None)
        self.write = write

    def compare(self, frame: Frame, op: str, other: Value) -> NoReturn:
        """Needs the text itself."""
        frame.break_graph("value_not_known", self.describe())

    def reload(self, emit: Emitter) -> str:
        """The expression of the text."""
        return self.write(emit)


def convert(frame: SymbolicFrame, value: Value, function: Callable[..., Any] | None) -> Value:
    """str(value), repr(value), ascii(value) or value."""
    if function is None:
        return value
    return call_builtin(frame, function, value)


def formatted(frame: SymbolicFrame, value: Value, spec: Value | None = None) -> Value:
    """format(value, spec)"""
    if value.python_type() is str and spec is None:
        return value
    return call_builtin(frame, format, value, *([spec] if spec is not None else []))


def call_builtin(frame: SymbolicFrame, function: Callable[..., Any], *args: Value) -> Value:
    """Call a builtin through its handler."""
    return frame.wrap(function, Const(function, function.__name__)).call(frame, list(args), {})


def joined(frame: SymbolicFrame, parts: list[Value]) -> Value:
    """The fields of an f-string in one text."""
    if any(isinstance(p, DeferredValue) for p in parts):
        return deferred_join(parts)
    if all(known_text(p) for p in parts):
        return joined_text(parts)
    return LazyText(lambda emit: f"''.join([{', '.join(emit.load(p) for p in parts)}])")


def part(start: Value, stop: Value) -> SliceValue:
    """start:stop"""
    return SliceValue(start, stop, NONE)


operators(
    {
        "BINARY_SUBSCR": (2, lambda frame, container, key: container.getitem(frame, key)),
        "DELETE_SUBSCR": (2, lambda frame, container, key: container.delitem(frame, key)),
        "BINARY_SLICE": (3, lambda frame, container, start, stop: container.getitem(frame, part(start, stop))),
        "STORE_SLICE": (4, lambda frame, value, container, start, stop: container.setitem(frame, part(start, stop), value)),
        "LIST_TO_TUPLE": (1, lambda frame, items: TupleValue(items.unpack(frame))),
        "FORMAT_SIMPLE": (1, formatted),
        "FORMAT_WITH_SPEC": (2, formatted),
    }
)
displays(
    {
        "BUILD_TUPLE": lambda frame, items: TupleValue(items),
        "BUILD_LIST": lambda frame, items: ListValue(items),
        "BUILD_SET": lambda frame, items: SetValue(frame, items),
        "BUILD_SLICE": lambda frame, parts: SliceValue(*parts, *[NONE] * (3 - len(parts))),
        "BUILD_STRING": joined,
    }
)
