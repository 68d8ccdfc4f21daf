"""iter, next, zip, enumerate, map, filter, reversed, sorted, any, all, functools.reduce, itertools.*"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from ...bytecode.facts import VERSION
from ..protocol.calls import Handler, call, calls
from ..protocol.constant import ConstantValue, fold_plain, force_plain
from ..protocol.iteration import iterate, iterate_all
from ..protocol.kinds import AbstractInstance
from ..protocol.operators import DUNDERS, binary, compare, equal, index_of
from ..protocol.value import Frame, Value, is_none
from .iterators import IteratorValue, PlainIterator, ReversedObject, ReverseIterator, SequenceIterator, iterate_alone
from .lazy_iterators import (
    CallIterator,
    ChainIterator,
    CountIterator,
    EnumerateIterator,
    FilterIterator,
    IslicedIterator,
    LazyIterator,
    MapIterator,
    RepeatIterator,
    StopMapIterator,
    TakeIterator,
    ZipIterator,
)
from .ranges import RangeValue
from .sequence import ListValue, SequenceValue, TupleValue
from .sets import SetValue

NONE = ConstantValue(None)


def iter_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 2:
        return CallIterator(args[0], args[1])
    return iterate(frame, args[0])


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
    frame.raise_user(frame.services.new_exception(frame, StopIteration, (returned,)))


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
        return PlainIterator(reversed(value.value))
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

    class Sorted:
        """An item as Python's own sort asks it, so that the program's comparisons come in its order."""

        def __init__(self, position: int) -> None:
            self.position = position

        def __lt__(self, other: Sorted) -> bool:
            return compare(frame, "<", keys[self.position], keys[other.position]).truth(frame)

    order = [Sorted(position) for position in range(len(items))]
    before = list(items)
    try:
        order.sort(reverse=descending)
    finally:
        items[:] = [before[s.position] for s in order]


def sorted_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key = kwargs.get("key")
    by_themselves = key is None or key.is_constant() and key.constant() is None
    items = args[0].in_any_order() if by_themselves and isinstance(args[0], SetValue) else None
    if items is None:
        items = iterate_all(frame, args[0], asks_length=True)
    sort_values(frame, items, key, is_descending(frame, kwargs.get("reverse")))
    return ListValue(items)


def any_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator = iterate(frame, args[0])
    while (item := iterator.next_value(frame)) is not None:
        if item.truth(frame):
            return ConstantValue(True)
    return ConstantValue(False)


def all_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator = iterate(frame, args[0])
    while (item := iterator.next_value(frame)) is not None:
        if not item.truth(frame):
            return ConstantValue(False)
    return ConstantValue(True)


def reduce_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator = iterate(frame, args[1])
    total = args[2] if len(args) > 2 else iterator.next_value(frame)
    if total is None:
        return frame.raise_new(TypeError, "reduce() of empty iterable with no initial value")
    while (item := iterator.next_value(frame)) is not None:
        total = args[0].call(frame, [total, item], {})
    return total


def chain_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ChainIterator(SequenceIterator(list(args)))


def chain_from_iterable(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ChainIterator(iterate(frame, args[0]))


def combinatoric(fn: Any) -> Handler:
    """itertools.product and the like, over positions."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if fn is itertools.product:
            pools = [iterate_all(frame, a) for a in args]
            repeat = force_plain(frame, kwargs["repeat"]) if "repeat" in kwargs else 1
            given_pools = [TupleValue(pool) for pool in pools]
            made_of: tuple[list[TupleValue], dict[str, Value]] = given_pools, {"repeat": ConstantValue(repeat)}
            return LazyIterator(fn, tuples, itertools.product(*pools, repeat=repeat), made_of=made_of, known=True)
        given = dict(zip(("iterable", "r"), args), **kwargs)
        items = iterate_all(frame, given["iterable"])
        rest = [force_plain(frame, given["r"])] if "r" in given else []
        try:
            parts = [TupleValue(items), *map(ConstantValue, rest)]
            return LazyIterator(fn, tuples, fn(items, *rest), made_of=(parts, {}), known=True)
        except (TypeError, ValueError) as error:
            return frame.raise_new(type(error), *error.args)

    return handler


def tuples(it: LazyIterator, combinations: Iterator[Iterable[Value]]) -> Iterator[Value]:
    """Tuples of values."""
    for found in combinations:
        yield TupleValue(found)


def accumulate_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("iterable", "func"), args), **kwargs)
    parts = iterate(frame, given["iterable"]), given.get("func", NONE), given.get("initial", NONE)
    return LazyIterator(itertools.accumulate, accumulated, *parts, made_of=(parts[:2], {"initial": parts[2]}))


def accumulated(it: LazyIterator, iterator: Value, fn: Value, initial: Value) -> Iterator[Value]:
    total = iterator.next_value(it.frame) if is_none(initial) else initial
    if total is None:
        return
    yield total
    while (item := iterator.next_value(it.frame)) is not None:
        total = binary(it.frame, "+", total, item) if is_none(fn) else fn.call(it.frame, [total, item], {})
        yield total


def zip_longest(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterators = [iterate(frame, a) for a in args]
    fill = kwargs.get("fillvalue", NONE)
    return LazyIterator(itertools.zip_longest, zipped_longest, iterators, fill, made_of=(iterators, {"fillvalue": fill}))


def zipped_longest(it: LazyIterator, iterators: Sequence[Value], fill: Value) -> Iterator[Value]:
    left: list[Value | None] = list(iterators)
    while True:
        items = []
        for position, iterator in enumerate(left):
            item = None if iterator is None else iterator.next_value(it.frame)
            if item is None:
                left[position] = None
            items.append(fill if item is None else item)
        if not any(left):
            return
        yield TupleValue(items)


def islice_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    plain = [force_plain(frame, a) for a in args[1:]]
    try:
        itertools.islice((), *plain)
    except (TypeError, ValueError) as error:
        frame.raise_new(type(error), *error.args)
    limits = slice(*plain)
    return IslicedIterator(iterate(frame, args[0]), limits)


def repeat_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("object", "times"), args), **kwargs)
    if "object" not in given:
        return frame.break_graph("call_unknown", "itertools.repeat() without an object")
    if "times" not in given:
        return RepeatIterator(given["object"], None)
    times = force_plain(frame, given["times"])
    fold_plain(frame, itertools.repeat, None, times)  # says what is wrong with the number
    return RepeatIterator(given["object"], times)


def count_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start = args[0] if args else kwargs.get("start", ConstantValue(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", ConstantValue(1))
    if start.python_type() is bool and step.is_constant() and step.python_type() is int and step.constant() == 1:
        start = ConstantValue(int(start.truth(frame)))  # as CPython counts ints in steps of one
    return CountIterator(start, step)


def starmap_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return StopMapIterator(args[0], iterate(frame, args[1]))


def takewhile_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return TakeIterator(args[0], iterate(frame, args[1]))


def dropwhile_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    parts = args[0], iterate(frame, args[1])
    return LazyIterator(itertools.dropwhile, dropped, *parts, made_of=(parts, {}))


def dropped(it: LazyIterator, predicate: Value, iterator: Value) -> Iterator[Value]:
    dropping = True
    while (item := iterator.next_value(it.frame)) is not None:
        dropping = dropping and predicate.call(it.frame, [item], {}).truth(it.frame)
        if not dropping:
            yield item


def filterfalse_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    parts = args[0], iterate(frame, args[1])
    return LazyIterator(itertools.filterfalse, filtered_false, *parts, made_of=(parts, {}))


def filtered_false(it: LazyIterator, predicate: Value, iterator: Value) -> Iterator[Value]:
    while (item := iterator.next_value(it.frame)) is not None:
        if not (item if is_none(predicate) else predicate.call(it.frame, [item], {})).truth(it.frame):
            yield item


def compress_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("data", "selectors"), args), **kwargs)
    parts = [iterate(frame, given[name]) for name in ("data", "selectors")]
    return LazyIterator(itertools.compress, compressed, *parts, made_of=(parts, {}))


def compressed(it: LazyIterator, data: Value, selectors: Value) -> Iterator[Value]:
    while (item := data.next_value(it.frame)) is not None:
        chosen = selectors.next_value(it.frame)
        if chosen is None:
            return
        if chosen.truth(it.frame):
            yield item


def pairwise_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator = iterate(frame, args[0])
    return LazyIterator(itertools.pairwise, paired, iterator, made_of=([iterator], {}))


def paired(it: LazyIterator, iterator: Value) -> Iterator[Value]:
    before = iterator.next_value(it.frame)
    while before is not None and (item := iterator.next_value(it.frame)) is not None:
        yield TupleValue([before, item])
        before = item


def batched_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    size = force_plain(frame, args[1] if len(args) > 1 else kwargs["n"])
    if not isinstance(size, int) or size < 1 or "strict" in kwargs:
        return frame.break_graph("builtin_unsupported", "itertools.batched")
    iterator = iterate(frame, args[0])
    kind: Any = itertools.batched  # type: ignore[attr-defined]
    return LazyIterator(kind, batches, iterator, size, made_of=([iterator, ConstantValue(size)], {}))


def batches(it: LazyIterator, iterator: Value, size: int) -> Iterator[Value]:
    while True:
        items: list[Value] = []
        while len(items) < size and (item := iterator.next_value(it.frame)) is not None:
            items.append(item)
        if not items:
            return
        yield TupleValue(items)


def groupby_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("iterable", "key"), args), **kwargs)
    iterator, key = iterate(frame, given["iterable"]), given.get("key", NONE)
    return LazyIterator(itertools.groupby, groups, Groups(iterator, key), made_of=([iterator, key], {}))


GROUP: type = itertools._grouper  # type: ignore[attr-defined]
TEE: type = itertools._tee  # type: ignore[attr-defined]


class Groups:
    """What a groupby object and its groups share: the item that was read ahead, its key, and which group may still ask."""

    def __init__(self, iterator: Value, key: Value) -> None:
        self.iterator, self.key = iterator, key
        self.item: Value | None = None
        self.item_key: Any = None
        self.group: LazyIterator | None = None

    def ahead(self, frame: Frame) -> bool:
        """Reads an item unless one waits; whether there is one."""
        if self.item is None:
            self.item = self.iterator.next_value(frame)
            if self.item is None:
                return False
            self.item_key = self.item if is_none(self.key) else self.key.call(frame, [self.item], {})
        return True

    def take(self) -> Value:
        """The item that waits."""
        item = self.item
        assert item is not None
        self.item = None
        return item


def groups(it: LazyIterator, shared: Groups) -> Iterator[Value]:
    key = None
    while shared.ahead(it.frame):
        if key is not None and equal(it.frame, key, shared.item_key):
            shared.take()
            continue
        key = shared.item_key
        shared.group = LazyIterator(GROUP, members, shared, key)
        yield TupleValue([key, shared.group])


def members(it: LazyIterator, shared: Groups, key: Value) -> Iterator[Value]:
    while shared.group is it and shared.ahead(it.frame) and equal(it.frame, key, shared.item_key):
        yield shared.take()


def tee_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    times = force_plain(frame, args[1]) if len(args) > 1 else 2
    if not isinstance(times, int) or times < 0:
        return frame.break_graph("builtin_unsupported", "itertools.tee")
    source = iterate(frame, args[0])
    seen: list[Value | None] = []
    return TupleValue([LazyIterator(TEE, shared_items, source, seen) for _ in range(times)])


def shared_items(it: LazyIterator, source: Value, seen: list[Value | None]) -> Iterator[Value]:
    position = 0
    while True:
        if position == len(seen):
            seen.append(source.next_value(it.frame))
        item = seen[position]
        if item is None:
            return
        position += 1
        yield item


def cycle_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator = iterate(frame, args[0])
    return LazyIterator(itertools.cycle, repeated, iterator, made_of=([iterator], {}))


def repeated(it: LazyIterator, iterator: Value) -> Iterator[Value]:
    items = []
    while (item := iterator.next_value(it.frame)) is not None:
        items.append(item)
        yield item
    while items:
        yield from items


calls(
    {
        iter: iter_,
        next: next_,
        zip: zip_,
        enumerate: enumerate_,
        map: map_,
        filter: filter_,
        reversed: reversed_,
        sorted: sorted_,
        any: any_,
        all: all_,
        functools.reduce: reduce_,
        itertools.chain: chain_,
        itertools.chain.from_iterable: chain_from_iterable,
        itertools.product: combinatoric(itertools.product),
        itertools.combinations: combinatoric(itertools.combinations),
        itertools.permutations: combinatoric(itertools.permutations),
        itertools.combinations_with_replacement: combinatoric(itertools.combinations_with_replacement),
        itertools.accumulate: accumulate_,
        itertools.zip_longest: zip_longest,
        itertools.islice: islice_,
        itertools.repeat: repeat_,
        itertools.count: count_,
        itertools.starmap: starmap_,
        itertools.takewhile: takewhile_,
        itertools.pairwise: pairwise_,
        itertools.groupby: groupby_,
        itertools.tee: tee_,
        itertools.cycle: cycle_,
        itertools.dropwhile: dropwhile_,
        itertools.filterfalse: filterfalse_,
        itertools.compress: compress_,
    }
)
if hasattr(itertools, "batched"):
    call(itertools.batched)(batched_)

DUNDERS["__reversed__"] = lambda frame, self: reversed_(frame, [self], {})
