"""Iterators of zip, map, filter, enumerate, iter and itertools, and of ranges: what they are made of is asked as they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..protocol.constant import ConstantValue
from ..protocol.iteration import iterate, iterate_all
from ..protocol.operators import binary, equal
from ..protocol.value import Emitter, Frame, Value
from .iterators import IteratorValue, advanced
from .sequence import TupleValue


class LazyIterator(IteratorValue):
    """An iterator of itertools, written as a Python generator over Values: `steps(self, *args)`, which finds the frame that asks in
    `self.frame`.

    `made_of`: what the iterator is made of, arguments by position and by keyword. It is made anew of them while nothing was asked of it; one over
    `known` items, whose steps run no code of the program, is then brought to its place.
    """

    def __init__(
        self,
        kind: type,
        steps: Callable[..., Iterator[Value]],
        *args: Any,
        made_of: tuple[Sequence[Value], dict[str, Value]] | None = None,
        known: bool = False,
    ) -> None:
        super().__init__(None)
        self.kind = kind
        self.frame: Any = None
        self.broken = False
        self.advances = 0
        self.made_of, self.known = made_of, known
        self.steps: Any = steps(self, *args)

    def next_value(self, frame: Frame) -> Value | None:
        if self.broken or self.steps.gi_running:
            return frame.break_graph("iterator_unsupported", f"{self.kind.__name__} after an exception, or inside itself")
        self.frame, outer = frame, self.frame
        self.advances += 1
        try:
            item: Value | None = next(self.steps, None)
            return item
        except BaseException:
            self.broken = True
            raise
        finally:
            self.frame = outer

    def reload(self, emit: Emitter) -> str:
        if self.made_of is None or self.advances and not self.known:
            return super().reload(emit)
        args, kwargs = self.made_of
        made = constructor_text(
            emit, self.kind, *map(emit.load, args), **{name: emit.load(value) for name, value in kwargs.items()}
        )
        if not self.advances:
            return made
        made = emit.temp(made)
        emit.line(advanced(emit, made, self.advances))
        return made


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


class StopMapIterator(MapIterator):
    """itertools.starmap"""

    kind = itertools.starmap

    def __init__(self, function: Value, iterator: Value) -> None:
        super().__init__(function, [iterator])

    def next_value(self, frame: Frame) -> Value | None:
        item = self.iterators[0].next_value(frame)
        return None if item is None else self.function.call(frame, iterate_all(frame, item), {})


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


class TakeIterator(IteratorValue):
    """itertools.takewhile"""

    kind = itertools.takewhile

    def __init__(self, function: Value, iterator: Value) -> None:
        super().__init__(None)
        self.function = function
        self.iterator = iterator
        self.done = False

    def next_value(self, frame: Frame) -> Value | None:
        if self.done:
            return None
        item = self.iterator.next_value(frame)
        if item is None or not self.function.call(frame, [item], {}).truth(frame):
            self.done = True
            return None
        return item

    def reload(self, emit: Emitter) -> str:
        return constructor_text(emit, self.kind, emit.load(self.function), "()" if self.done else emit.load(self.iterator))


class ChainIterator(IteratorValue):
    kind = itertools.chain

    def __init__(self, sources: Value) -> None:
        super().__init__(None)
        self.sources = sources
        self.current: Value | None = None

    def next_value(self, frame: Frame) -> Value | None:
        while True:
            if self.current is None:
                source = self.sources.next_value(frame)
                if source is None:
                    return None
                self.current = iterate(frame, source)
            item = self.current.next_value(frame)
            if item is not None:
                return item
            self.current = None

    def reload(self, emit: Emitter) -> str:
        begun = None if self.current is None else emit.load(self.current)
        later = emit.load(self.sources)
        if begun is None:
            return f"{emit.const(self.kind)}.from_iterable({later})"
        return f"{emit.const(self.kind)}.from_iterable({emit.const(self.kind)}(({begun},), {later}))"


UNLIMITED = 1 << 62


class IslicedIterator(IteratorValue):
    kind = itertools.islice

    def __init__(self, iterator: Value, limits: slice) -> None:
        super().__init__(None)
        self.iterator: Value | None = iterator
        self.stop, self.step = UNLIMITED if limits.stop is None else limits.stop, limits.step or 1
        self.wanted = limits.start or 0
        self.position = 0

    def next_value(self, frame: Frame) -> Value | None:
        item = None if self.iterator is None else self.advanced(frame, self.iterator)
        if item is None:
            self.iterator = None
        return item

    def advanced(self, frame: Frame, iterator: Value) -> Value | None:
        """The next item that is wanted, None at the end; what comes before the end is taken from the iterator as well."""
        while self.position < self.wanted:
            if iterator.next_value(frame) is None:
                return None
            self.position += 1
        if self.position >= self.stop:
            return None
        self.position += 1
        self.wanted = min(self.wanted + self.step, self.stop)
        return iterator.next_value(frame)

    def reload(self, emit: Emitter) -> str:
        if self.iterator is None:
            return constructor_text(emit, self.kind, "()", "0")
        stop = "None" if self.stop == UNLIMITED else str(self.stop - self.position)
        return constructor_text(emit, self.kind, emit.load(self.iterator), str(self.wanted - self.position), stop, str(self.step))


class RepeatIterator(IteratorValue):
    kind = itertools.repeat

    def __init__(self, value: Value, times: int | None) -> None:
        super().__init__(None)
        self.value = value
        self.times = times

    def next_value(self, frame: Frame) -> Value | None:
        if self.times is None:
            return self.value
        if self.times <= 0:
            return None
        self.times -= 1
        return self.value

    def reload(self, emit: Emitter) -> str:
        return constructor_text(
            emit, self.kind, emit.load(self.value), *([] if self.times is None else [str(max(self.times, 0))])
        )


class CountIterator(IteratorValue):
    kind = itertools.count

    def __init__(self, start: Value, step: Value) -> None:
        super().__init__(None)
        self.value = start
        self.step = step

    def next_value(self, frame: Frame) -> Value | None:
        current = self.value
        self.value = binary(frame, "+", current, self.step)
        return current

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(itertools.count)}({emit.load(self.value)}, {emit.load(self.step)})"


class CallIterator(IteratorValue):
    """iter(callable, sentinel)"""

    kind = type(iter(int, 1))

    def __init__(self, function: Value, sentinel: Value) -> None:
        super().__init__(None)
        self.function = function
        self.sentinel = sentinel
        self.ended = False

    def next_value(self, frame: Frame) -> Value | None:
        if self.ended:
            return None
        item = self.function.call(frame, [], {})
        self.ended = equal(frame, item, self.sentinel)
        return None if self.ended else item

    def reload(self, emit: Emitter) -> str:
        if self.ended:
            return super().reload(emit)
        return constructor_text(emit, iter, emit.load(self.function), emit.load(self.sentinel))
