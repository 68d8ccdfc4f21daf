"""Nested tuples, lists and dicts of values: their leaves in order, and the same nesting over other leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..plain.mapping import DictValue, dict_of
from ..plain.sequence import ListValue, TupleValue
from ..protocol.binding import class_value
from ..protocol.value import Frame, Value, builtin_part


def children(frame: Frame, value: Value) -> tuple[list[Value], Callable[..., Any]] | None:
    """(items, a function that makes such a container of other items), or None for a leaf."""
    if isinstance(value, (TupleValue, ListValue)) and type(value) in (TupleValue, ListValue):
        kind, cls = type(value), value.python_type()
        return value.unpack(frame), (lambda items: kind(items, cls=cls)) if kind is TupleValue else kind
    part = builtin_part(value)
    if part is not value and isinstance(part, TupleValue) and hasattr(value.python_type(), "_fields"):
        # a namedtuple with attributes, as torch's pytrees take it
        return part.unpack(frame), lambda items: class_value(frame, value.python_type()).call(frame, items, {})
    if isinstance(value, DictValue) and value.python_type() is dict:
        pairs = value.all_items(frame)
        return [v for _, v in pairs], lambda items: dict_of(frame, list(zip((k for k, _ in pairs), items)))
    return None


def leaves(frame: Frame, value: Value) -> list[Any]:
    """All leaves, in order."""
    found = children(frame, value)
    return [value] if found is None else [leaf for item in found[0] for leaf in leaves(frame, item)]


def rebuilt(frame: Frame, value: Value, replacements: Iterator[Value]) -> Value:
    """The nesting of value over the leaves that the iterator `replacements` gives."""
    found = children(frame, value)
    if found is None:
        return next(replacements)
    items, make = found
    made: Value = make([rebuilt(frame, item, replacements) for item in items])
    return made


def same_structure(frame: Frame, value: Value, other: Any) -> bool:
    """Whether two values are nested in the same way."""
    first, second = children(frame, value), children(frame, other)
    if first is None or second is None:
        return first is second
    if value.python_type() is not other.python_type() or len(first[0]) != len(second[0]):
        return False
    if isinstance(value, DictValue) and [k.hash_key(frame) for k, _ in value.all_items(frame)] != [
        k.hash_key(frame) for k, _ in other.all_items(frame)
    ]:
        return False
    return all(same_structure(frame, a, b) for a, b in zip(first[0], second[0]))


def spread(frame: Frame, value: Value, option: Any) -> list[int | None]:
    """An option for each leaf: `option` is one for all, or nested as the value is."""
    found = children(frame, value)
    if not isinstance(option, (tuple, list, dict)):
        return [option for _ in leaves(frame, value)]
    parts = list(option.values()) if isinstance(option, dict) else list(option)
    if found is None or len(found[0]) != len(parts):
        return frame.break_graph("call_unknown", "dims of torch.vmap that do not fit the arguments")
    return [o for item, part in zip(found[0], parts) for o in spread(frame, item, part)]
