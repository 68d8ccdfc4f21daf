"""next, zip, enumerate, map, filter, reversed, sorted, any, all, functools.reduce"""

from __future__ import annotations

import functools
import operator
from typing import Any, NoReturn

from ...bytecode.facts import VERSION
from ..protocol.calls import Handler, calls
from ..protocol.constant import ConstantValue, fold_plain, force_plain
from ..protocol.iteration import iterate, iterate_all
from ..protocol.kinds import AbstractInstance
from ..protocol.operators import DUNDERS, compare, index_of
from ..protocol.value import Frame, Value, is_none
from .iterators import ConstantIterator, IteratorValue, ReversedObject, ReverseIterator, SequenceIterator, iterate_alone
from .lazy_iterators import (
    EnumerateIterator,
    FilterIterator,
    MapIterator,
    ZipIterator,
)
from .ranges import RangeValue
from .sequence import ListValue, SequenceValue
from .sets import SetValue

NONE = ConstantValue(None)


def next_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[0], AbstractInstance) and len(args) == 1:
        return args[0].required(frame, "__next__", [], "is not an iterator")
    if not hasattr(args[0].python_type(), "__next__"):
        return frame.raise_new(TypeError, f"'{args[0].python_type().__name__}' object is not an iterator")
    item = args[0].next_value(frame)
    if item is not None:
        return item
    return args[1] if len(args) > 1 else end_of(frame, args[0])


def end_of(frame: Frame, iterator: Any) -> NoReturn:
    """StopIteration, with what a generator returned."""
    returned, iterator.returned = getattr(iterator, "returned", None), None
    if is_none(returned):
        frame.raise_new(StopIteration)
    frame.raise_new(StopIteration, returned)


def zip_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    strict = kwargs.get("strict")
    made = ZipIterator([iterate_alone(frame, a) for a in args], strict is not None and strict.truth(frame))
    return mark_pushed(frame, made)


def enumerate_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0))
    iterable = args[0] if args else kwargs["iterable"]
    first = fold_plain(frame, operator.index, force_plain(frame, start))
    return mark_pushed(frame, EnumerateIterator(iterate_alone(frame, iterable), first))


def mark_pushed(frame: Frame, iterator: IteratorValue) -> IteratorValue:
    """The iterator, which knows when it came onto the stack of the captured frame."""
    if frame.parent is None:
        iterator.pushed_at = frame.progress.step
    return iterator


def map_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return MapIterator(args[0], [iterate(frame, a) for a in args[1:]])


def filter_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return FilterIterator(None if is_none(args[0]) else args[0], iterate(frame, args[1]))


def reversed_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0]
    found = value.own_reversed(frame)
    if found is not None:
        return found
    if not hasattr(value.python_type(), "__reversed__") and not hasattr(value.python_type(), "__getitem__"):
        return frame.raise_new(TypeError, f"'{value.python_type().__name__}' object is not reversible")
    if isinstance(value, SequenceValue):
        return ReverseIterator(value, frame)
    if isinstance(value, RangeValue):
        return ConstantIterator(value.value[::-1])
    if isinstance(value, AbstractInstance):
        return ReversedObject(value, frame)
    return SequenceIterator(iterate_all(frame, value)[::-1])


def is_descending(frame: Frame, reverse: Value | None) -> bool:
    """What sort's `reverse` asks for: CPython 3.11 takes a C int, later ones take any truth."""
    if reverse is None:
        return False
    if VERSION < (3, 12):
        reverse = index_of(frame, [reverse], {})
        if reverse.is_constant() and not -(1 << 31) <= reverse.constant() < 1 << 31:
            frame.raise_new(OverflowError, "Python int too large to convert to C int")
    return reverse.truth(frame)


def sort_values(frame: Frame, items: list[Value], key: Value | None, descending: bool) -> None:
    """Sorts the list of values; when a comparison raises, it is left as CPython leaves it."""
    keys = list(items) if key is None or is_none(key) else [key.call(frame, [i], {}) for i in items]

    def order(left: int, right: int) -> int:
        """Below 0 where `<` says so: list.sort asks nothing else, so that the program's comparisons come in its order."""
        return -compare(frame, "<", keys[left], keys[right]).truth(frame)

    places = list(range(len(items)))
    before = list(items)
    try:
        places.sort(key=functools.cmp_to_key(order), reverse=descending)
    finally:
        items[:] = [before[place] for place in places]


def sorted_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key = kwargs.get("key")
    by_themselves = key is None or key.is_constant() and key.constant() is None
    items = args[0].in_any_order() if by_themselves and isinstance(args[0], SetValue) else None
    if items is None:
        items = iterate_all(frame, args[0], asks_length=True)
    sort_values(frame, items, key, is_descending(frame, kwargs.get("reverse")))
    return ListValue(items)


def quantifier(decides: bool) -> Handler:
    """any, which an item that is true decides, or all."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        iterator = iterate(frame, args[0])
        while (item := iterator.next_value(frame)) is not None:
            if item.truth(frame) == decides:
                return ConstantValue(decides)
        return ConstantValue(not decides)

    return handler


def reduce_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator = iterate(frame, args[1])
    total = args[2] if len(args) > 2 else iterator.next_value(frame)
    if total is None:
        return frame.raise_new(TypeError, "reduce() of empty iterable with no initial value")
    while (item := iterator.next_value(frame)) is not None:
        total = args[0].call(frame, [total, item], {})
    return total


calls(
    {
        next: next_,
        zip: zip_,
        enumerate: enumerate_,
        map: map_,
        filter: filter_,
        reversed: reversed_,
        sorted: sorted_,
        any: quantifier(True),
        all: quantifier(False),
        functools.reduce: reduce_,
    }
)

DUNDERS["__reversed__"] = lambda frame, self: reversed_(frame, [self], {})
