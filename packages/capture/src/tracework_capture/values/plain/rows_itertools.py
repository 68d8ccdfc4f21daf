"""itertools, and iter(function, sentinel): each iterator is a Python generator over Values."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..protocol.calls import Handler, call, calls
from ..protocol.constant import ConstantValue, fold_plain, force_plain
from ..protocol.iteration import iterate, iterate_all
from ..protocol.operators import binary, equal
from ..protocol.value import Emitter, Frame, Value, is_none
from .iterators import IteratorValue, SequenceIterator, advanced
from .lazy_iterators import constructor_text
from .sequence import NONE, TupleValue

EMPTY = ConstantValue(())
GROUP: type = itertools._grouper  # type: ignore[attr-defined]
TEE: type = itertools._tee  # type: ignore[attr-defined]
ITERATED = frozenset(("iterable", "iterables", "data", "selectors"))
"""What functions of itertools call the arguments that they go over."""

Steps = Callable[..., Iterator[Value]]


class LazyIterator(IteratorValue):
    """`steps(self, *args, **kwargs)` is a generator, which finds the frame that asks in `self.frame`.

    `maker(*args, **kwargs)`, with the first `taken` items taken off, is an iterator that stands where this one does. Steps that remember more
    than how far the iterators are which they ask write that there; no args say that there is no such call.
    """

    frame: Any = None
    steps: Any = None
    taken = 0

    def __init__(
        self,
        kind: type,
        generator: Steps,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        maker: Callable[..., Any] | None = None,
        resumes: bool = True,
    ) -> None:
        super().__init__(None)
        self.kind, self.generator, self.maker = kind, generator, maker
        self.args: Sequence[Any] | None = args
        self.kwargs = kwargs or {}
        self.resumes = resumes  # whether it goes on after an exception of what it asks

    def next_value(self, frame: Frame) -> Value | None:
        self.frame, outer = frame, self.frame
        try:
            if self.steps is None and self.args is not None:
                self.steps = self.generator(self, *self.args, **self.kwargs)
                for _ in range(self.taken):
                    next(self.steps)
            elif self.steps is None or self.steps.gi_running:
                frame.break_graph("iterator_unsupported", f"{self.kind.__name__} after an exception, or inside itself")
            item: Value | None = next(self.steps, None)
            return item
        except BaseException:
            self.steps, self.args = None, self.args if self.resumes else None
            raise
        finally:
            self.frame = outer

    def each(self, iterator: Value) -> Iterator[Value]:
        """The items of an iterator."""
        while (item := iterator.next_value(self.frame)) is not None:
            yield item

    def reload(self, emit: Emitter) -> str:
        if self.maker is None or self.args is None:
            return super().reload(emit)
        args, kwargs = [loaded(emit, arg) for arg in self.args], {name: loaded(emit, arg) for name, arg in self.kwargs.items()}
        made = constructor_text(emit, self.maker, *args, **kwargs)
        if self.taken:
            made = emit.temp(made)
            emit.line(advanced(emit, made, self.taken))
        return made


def loaded(emit: Emitter, arg: Any) -> str:
    """The expression of an argument: a value, or a number that is known."""
    return emit.load(arg) if isinstance(arg, Value) else emit.literal(arg)


def lazy(kind: type, resumes: bool = True) -> Callable[[Steps], Steps]:
    """Adds a row for a class of itertools, whose iterators take these steps."""

    def add(generator: Steps) -> Steps:
        parameters = list(inspect.signature(generator).parameters.values())[1:]
        names = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]

        @call(kind)
        @functools.wraps(generator)
        def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
            def part(name: str, arg: Value) -> Value:
                return iterate(frame, arg) if name in ITERATED else arg

            given = [part(names[min(place, len(names) - 1)], arg) for place, arg in enumerate(args)]
            return LazyIterator(kind, generator, given, {k: part(k, arg) for k, arg in kwargs.items()}, kind, resumes)

        return generator

    return add


def chained(it: LazyIterator, iterable: Value) -> Iterator[Value]:
    for source in it.each(iterable):
        begun = iterate(it.frame, source)
        it.args = [chain_of(TupleValue([begun]), iterable)]
        yield from it.each(begun)
        it.args = [iterable]


def chain_of(*sources: Value) -> LazyIterator:
    """itertools.chain(*sources)"""
    return LazyIterator(itertools.chain, chained, [SequenceIterator(list(sources))], maker=itertools.chain.from_iterable)


def chain(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return chain_of(*args)


def chain_from_iterable(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    sources = [iterate(frame, args[0])]
    return LazyIterator(itertools.chain, chained, sources, maker=itertools.chain.from_iterable)


def combinatoric(kind: Callable[..., Any]) -> Handler:
    """itertools.product and the like, over positions."""

    def items(part: Any) -> Any:
        return part.items if isinstance(part, TupleValue) else part

    def steps(it: LazyIterator, *args: Any, **kwargs: Any) -> Iterator[Value]:
        combinations = kind(*map(items, args), **{name: items(arg) for name, arg in kwargs.items()})
        for it.taken, found in enumerate(combinations, 1):
            yield TupleValue(found)

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        pools = len(args) if kind is itertools.product else 1
        given = [TupleValue(iterate_all(frame, arg)) for arg in args[:pools]] + [force_plain(frame, arg) for arg in args[pools:]]
        named = {
            name: TupleValue(iterate_all(frame, arg)) if name in ITERATED else force_plain(frame, arg)
            for name, arg in kwargs.items()
        }
        fold_plain(frame, kind, *map(items, given), **{name: items(arg) for name, arg in named.items()})  # says what is wrong
        return LazyIterator(kind, steps, given, named, kind)  # type: ignore[arg-type]  # a class

    return handler


@lazy(itertools.accumulate)
def accumulate(it: LazyIterator, iterable: Value, func: Value = NONE, *, initial: Value = NONE) -> Iterator[Value]:
    total = iterable.next_value(it.frame) if is_none(initial) else initial
    while total is not None:
        it.args, it.kwargs, it.taken = None if is_none(total) else [iterable, func], {"initial": total}, 1
        yield total
        item = iterable.next_value(it.frame)
        if item is None:
            return
        total = binary(it.frame, "+", total, item) if is_none(func) else func.call(it.frame, [total, item], {})


@lazy(itertools.zip_longest, resumes=False)
def zip_longest(it: LazyIterator, *iterables: Value, fillvalue: Value = NONE) -> Iterator[Value]:
    left: list[Value | None] = list(iterables)
    while True:
        items = []
        for place, iterator in enumerate(left):
            item = None if iterator is None else iterator.next_value(it.frame)
            if item is None:
                left[place] = None
            items.append(fillvalue if item is None else item)
        if not any(left):
            return
        yield TupleValue(items)


def islice(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    plain = [force_plain(frame, arg) for arg in args[1:]]
    fold_plain(frame, itertools.islice, (), *plain)  # says what is wrong with them
    limits = slice(*plain)
    parts = [iterate(frame, args[0]), limits.start or 0, limits.stop, limits.step or 1]
    return LazyIterator(itertools.islice, sliced, parts, maker=itertools.islice, resumes=False)


def sliced(it: LazyIterator, iterator: Value, start: int, stop: int | None, step: int) -> Iterator[Value]:
    while all(iterator.next_value(it.frame) is not None for _ in range(start)) and (stop is None or start < stop):
        item = iterator.next_value(it.frame)
        if item is None:
            break
        stop = None if stop is None else stop - start - 1
        start = step - 1 if stop is None else min(step - 1, stop)
        it.args = [iterator, start, stop, step]
        yield item
    it.args = [EMPTY, 0]


def repeat(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("object", "times"), args), **kwargs)
    if "object" not in given:
        return frame.break_graph("call_unknown", "itertools.repeat() without an object")
    times = [force_plain(frame, given["times"])] if "times" in given else []
    fold_plain(frame, itertools.repeat, None, *times)  # says what is wrong with the number
    return LazyIterator(itertools.repeat, repeated, [given["object"], *times], maker=itertools.repeat)


def repeated(it: LazyIterator, item: Value, times: int | None = None) -> Iterator[Value]:
    while times is None or times > 0:
        if times is not None:
            times -= 1
            it.args = [item, times]
        yield item


def count(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start = args[0] if args else kwargs.get("start", ConstantValue(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", ConstantValue(1))
    if start.python_type() is bool and step.is_constant() and step.python_type() is int and step.constant() == 1:
        start = ConstantValue(int(start.truth(frame)))  # as CPython counts ints in steps of one
    return LazyIterator(itertools.count, counted, [start, step], maker=itertools.count)


def counted(it: LazyIterator, number: Value, step: Value) -> Iterator[Value]:
    while True:
        given, number = number, binary(it.frame, "+", number, step)
        it.args = [number, step]
        yield given


@lazy(itertools.starmap)
def starmap(it: LazyIterator, function: Value, iterable: Value) -> Iterator[Value]:
    for item in it.each(iterable):
        yield function.call(it.frame, iterate_all(it.frame, item), {})


@lazy(itertools.takewhile)
def takewhile(it: LazyIterator, predicate: Value, iterable: Value) -> Iterator[Value]:
    for item in it.each(iterable):
        if not predicate.call(it.frame, [item], {}).truth(it.frame):
            break
        yield item
    it.args = [predicate, EMPTY]


@lazy(itertools.dropwhile)
def dropwhile(it: LazyIterator, predicate: Value, iterable: Value) -> Iterator[Value]:
    for item in it.each(iterable):
        if it.args is None or not predicate.call(it.frame, [item], {}).truth(it.frame):
            it.args = None
            yield item


@lazy(itertools.filterfalse)
def filterfalse(it: LazyIterator, predicate: Value, iterable: Value) -> Iterator[Value]:
    for item in it.each(iterable):
        if not (item if is_none(predicate) else predicate.call(it.frame, [item], {})).truth(it.frame):
            yield item


@lazy(itertools.compress)
def compress(it: LazyIterator, data: Value, selectors: Value) -> Iterator[Value]:
    for item in it.each(data):
        chosen = selectors.next_value(it.frame)
        if chosen is None:
            return
        if chosen.truth(it.frame):
            yield item


@lazy(itertools.pairwise, resumes=False)
def pairwise(it: LazyIterator, iterable: Value) -> Iterator[Value]:
    before = iterable.next_value(it.frame)
    while before is not None and (item := iterable.next_value(it.frame)) is not None:
        it.args = [chain_of(TupleValue([item]), iterable)]
        yield TupleValue([before, item])
        before = item


def batched(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    size = force_plain(frame, args[1] if len(args) > 1 else kwargs["n"])
    if not isinstance(size, int) or size < 1 or "strict" in kwargs:
        return frame.break_graph("builtin_unsupported", "itertools.batched")
    kind: Any = itertools.batched  # type: ignore[attr-defined]
    return LazyIterator(kind, batches, [iterate(frame, args[0]), size], maker=kind, resumes=False)


def batches(it: LazyIterator, iterator: Value, size: int) -> Iterator[Value]:
    while items := list(itertools.islice(it.each(iterator), size)):
        yield TupleValue(items)


class Ahead:
    """What a groupby object and its groups share: the item that was read ahead, with its key, and which group may still ask."""

    item: tuple[Value, Value] | None = None
    group: LazyIterator | None = None

    def __init__(self, iterator: Value, key: Value) -> None:
        self.iterator, self.key = iterator, key

    def read(self, frame: Frame) -> tuple[Value, Value] | None:
        """The item that waits, or the next one; None at the end."""
        if self.item is None and (item := self.iterator.next_value(frame)) is not None:
            self.item = item, item if is_none(self.key) else self.key.call(frame, [item], {})
        return self.item


@lazy(itertools.groupby, resumes=False)
def groupby(it: LazyIterator, iterable: Value, key: Value = NONE) -> Iterator[Value]:
    it.args, group_key = None, None
    ahead = Ahead(iterable, key)
    while (read := ahead.read(it.frame)) is not None:
        if group_key is not None and equal(it.frame, group_key, read[1]):
            ahead.item = None
            continue
        group_key = read[1]
        ahead.group = LazyIterator(GROUP, members, [ahead, group_key], resumes=False)
        yield TupleValue([group_key, ahead.group])


def members(it: LazyIterator, ahead: Ahead, key: Value) -> Iterator[Value]:
    while ahead.group is it and (read := ahead.read(it.frame)) is not None and equal(it.frame, key, read[1]):
        ahead.item = None
        yield read[0]


def tee(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    times = force_plain(frame, args[1]) if len(args) > 1 else 2
    if not isinstance(times, int) or times < 0:
        return frame.break_graph("builtin_unsupported", "itertools.tee")
    source, seen = iterate(frame, args[0]), list[Value]()
    return TupleValue([LazyIterator(TEE, shared_items, [source, seen], resumes=False) for _ in range(times)])


def shared_items(it: LazyIterator, source: Value, seen: list[Value]) -> Iterator[Value]:
    for position in itertools.count():
        if position == len(seen):
            item = source.next_value(it.frame)
            if item is None:
                return
            seen.append(item)
        yield seen[position]


@lazy(itertools.cycle)
def cycle(it: LazyIterator, iterable: Value) -> Iterator[Value]:
    saved = TupleValue([])
    it.args = [chain_of(saved, iterable)]
    for item in it.each(iterable):
        saved.items.append(item)
        it.taken = len(saved.items)
        yield item
    it.args = [saved]
    while saved.items:
        for it.taken, item in enumerate(saved.items, 1):
            yield item


def called(it: LazyIterator, function: Value, sentinel: Value) -> Iterator[Value]:
    while not equal(it.frame, item := function.call(it.frame, [], {}), sentinel):
        yield item
    it.args = None


def iter_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return LazyIterator(type(iter(int, 1)), called, args, maker=iter) if len(args) == 2 else iterate(frame, args[0])


calls(
    {
        iter: iter_,
        itertools.chain: chain,
        itertools.chain.from_iterable: chain_from_iterable,
        itertools.count: count,
        itertools.islice: islice,
        itertools.repeat: repeat,
        itertools.tee: tee,
    }
)
for _kind in (itertools.product, itertools.combinations, itertools.permutations, itertools.combinations_with_replacement):
    call(_kind)(combinatoric(_kind))
if hasattr(itertools, "batched"):
    call(itertools.batched)(batched)
