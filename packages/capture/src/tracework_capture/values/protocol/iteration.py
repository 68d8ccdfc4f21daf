"""Going over iterables, item by item or all at once."""

from __future__ import annotations

from collections.abc import Iterator

from .value import Frame, Value


def iterate(frame: Frame, value: Value) -> Value:
    """iter(value)"""
    return value.iterate(frame)


def each_of(frame: Frame, value: Value, asks_length: bool = False) -> Iterator[Value]:
    """The items of an iterable, each as it is taken: what takes them in changes meanwhile, and has them when a later one raises.
    asks_length: whether it is asked first how many there are, to get room for them."""
    if value.iterates_in_c:
        yield from list(value.unpack(frame))
        return
    iterator = value.iterate(frame)
    if asks_length:
        value.call_length_hint(frame)
    while (item := iterator.next_value(frame)) is not None:
        yield item
        frame.progress.iterate(frame)


def iterate_all(frame: Frame, value: Value, asks_length: bool = False) -> list[Value]:
    """list(value), which asks for a length if that may be seen."""
    return list(each_of(frame, value, asks_length))
