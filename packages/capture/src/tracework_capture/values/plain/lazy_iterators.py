"""Iterators of zip, enumerate, map and filter: what they are made of is asked as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..protocol.constant import ConstantValue
from ..protocol.value import Emitter, Frame, Value
from .iterators import IteratorValue
from .sequence import TupleValue


def constructor_text(emit: Emitter, kind: Callable[..., Any], *args: str, **kwargs: str) -> str:
    """Text of kind(*args, **kwargs), whose arguments are texts."""
    return f"{emit.const(kind)}({', '.join([*args, *(f'{name}={text}' for name, text in kwargs.items())])})"


class ZipIterator(IteratorValue):
    kind = zip

    def __init__(self, iterators: list[Any], strict: bool = False) -> None:
        super().__init__(None)
        self.iterators = iterators
        self.strict = strict

    def next_value(self, frame: Frame) -> Value | None:
        items = []
        for position, iterator in enumerate(self.iterators):
            item = iterator.next_value(frame)
            if item is None:
                self.end(frame, position)
                return None
            items.append(item)
        return TupleValue(items) if items else None

    def parts(self) -> Iterable[Value]:
        return self.iterators

    def rest(self, emit: Emitter) -> str | None:
        items = [] if self.strict else [iterator.rest(emit) for iterator in self.iterators]
        if not items or None in items:
            return None
        return f"{emit.const(tuple)}({emit.const(zip)}({', '.join(items)}))"

    def end(self, frame: Frame, position: int) -> None:
        """The iterator at this position has no more items."""
        if not self.strict:
            return
        if position:
            frame.raise_new(ValueError, f"zip() argument {position + 1} is shorter than argument {position}")
        for later, iterator in enumerate(self.iterators[1:]):
            if iterator.next_value(frame) is not None:
                frame.raise_new(ValueError, f"zip() argument {later + 2} is longer than argument {later + 1}")

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(zip)}({''.join(emit.load(i) + ', ' for i in self.iterators)}strict={self.strict})"


class EnumerateIterator(IteratorValue):
    kind = enumerate

    def __init__(self, iterator: Any, start: int) -> None:
        super().__init__(None)
        self.iterator = iterator
        self.index = start

    def next_value(self, frame: Frame) -> Value | None:
        item = self.iterator.next_value(frame)
        if item is None:
            return None
        self.index += 1
        return TupleValue([ConstantValue(self.index - 1), item])

    def parts(self) -> Iterable[Value]:
        return (self.iterator,)

    def rest(self, emit: Emitter) -> str | None:
        items: str | None = self.iterator.rest(emit)
        return None if items is None else f"{emit.const(tuple)}({emit.const(enumerate)}({items}, {self.index}))"

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(enumerate)}({emit.load(self.iterator)}, {self.index})"


class MapIterator(IteratorValue):
    kind: type = map

    def __init__(self, function: Value, iterators: list[Value]) -> None:
        super().__init__(None)
        self.function = function
        self.iterators = iterators

    def next_value(self, frame: Frame) -> Value | None:
        items = []
        for iterator in self.iterators:
            item = iterator.next_value(frame)
            if item is None:
                return None
            items.append(item)
        return self.function.call(frame, items, {})

    def reload(self, emit: Emitter) -> str:
        parts = [emit.load(self.function), *(emit.load(i) for i in self.iterators)]
        return f"{emit.const(self.kind)}({', '.join(parts)})"


class FilterIterator(IteratorValue):
    kind = filter

    def __init__(self, function: Value | None, iterator: Value) -> None:
        super().__init__(None)
        self.function = function
        self.iterator = iterator

    def next_value(self, frame: Frame) -> Value | None:
        while (item := self.iterator.next_value(frame)) is not None:
            verdict = item if self.function is None else self.function.call(frame, [item], {})
            if verdict.truth(frame):
                return item
        return None

    def reload(self, emit: Emitter) -> str:
        function = "None" if self.function is None else emit.load(self.function)
        return f"{emit.const(filter)}({function}, {emit.load(self.iterator)})"
