"""iter, next, zip, enumerate, map, filter, reversed, sorted, any, all, functools.reduce, itertools.*"""

from __future__ import annotations

import functools
import itertools

from ..constant import ConstantValue, force_plain
from ..generator import (
    CallIterator,
    ChainIterator,
    CountIterator,
    CycleIterator,
    EnumerateIterator,
    FilterIterator,
    IslicedIterator,
    MapIterator,
    RepeatIterator,
    SequenceIterator,
    StopMapIterator,
    TakeIterator,
    ZipIterator,
)
from ..sequence import ListValue, TupleValue
from ..wrap import iterate, iterate_all
from .arithmetic import binary, compare

NONE = ConstantValue(None)


def is_none(value):
    return value is None or (value.is_constant() and value.constant() is None)


def iter_(frame, args, kwargs):
    if len(args) == 2:
        return CallIterator(args[0], args[1])
    return iterate(frame, args[0])


def next_(frame, args, kwargs):
    item = args[0].next_value(frame)
    if item is not None:
        return item
    return args[1] if len(args) > 1 else frame.raise_new(StopIteration)


def zip_(frame, args, kwargs):
    strict = kwargs.get("strict")
    return ZipIterator([iterate(frame, a) for a in args], strict is not None and strict.truth(frame))


def enumerate_(frame, args, kwargs):
    start = args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0))
    iterable = args[0] if args else kwargs["iterable"]
    return EnumerateIterator(iterate(frame, iterable), force_plain(frame, start))


def map_(frame, args, kwargs):
    return MapIterator(args[0], [iterate(frame, a) for a in args[1:]])


def filter_(frame, args, kwargs):
    return FilterIterator(None if is_none(args[0]) else args[0], iterate(frame, args[1]))


def reversed_(frame, args, kwargs):
    from ..user_object import ObjectValue

    value = args[0]
    if isinstance(value, ObjectValue) and hasattr(value.python_type(), "__reversed__"):
        return value.call_method(frame, "__reversed__", [], {})
    return SequenceIterator(iterate_all(frame, value)[::-1])


def sort_values(frame, items, key=None, reverse=None):
    """Stable merge by the value protocol."""
    keys = items if is_none(key) else [key.call(frame, [i], {}) for i in items]
    descending = reverse is not None and reverse.truth(frame)

    def order(a, b):
        if compare(frame, "<", keys[a], keys[b]).truth(frame):
            return -1
        return 1 if compare(frame, "<", keys[b], keys[a]).truth(frame) else 0

    positions = sorted(range(len(items)), key=functools.cmp_to_key(order), reverse=descending)
    return [items[p] for p in positions]


def sorted_(frame, args, kwargs):
    return ListValue(sort_values(frame, iterate_all(frame, args[0]), kwargs.get("key"), kwargs.get("reverse")))


def any_(frame, args, kwargs):
    iterator = iterate(frame, args[0])
    while (item := iterator.next_value(frame)) is not None:
        if item.truth(frame):
            return ConstantValue(True)
    return ConstantValue(False)


def all_(frame, args, kwargs):
    iterator = iterate(frame, args[0])
    while (item := iterator.next_value(frame)) is not None:
        if not item.truth(frame):
            return ConstantValue(False)
    return ConstantValue(True)


def reduce_(frame, args, kwargs):
    iterator = iterate(frame, args[1])
    total = args[2] if len(args) > 2 else iterator.next_value(frame)
    if total is None:
        return frame.raise_new(TypeError, "reduce() of empty iterable with no initial value")
    while (item := iterator.next_value(frame)) is not None:
        total = args[0].call(frame, [total, item], {})
    return total


def chain_(frame, args, kwargs):
    return ChainIterator(SequenceIterator(list(args)))


def chain_from_iterable(frame, args, kwargs):
    return ChainIterator(iterate(frame, args[0]))


def combinatoric(fn):
    """itertools.product and the like, over positions."""

    def handler(frame, args, kwargs):
        if fn is itertools.product:
            pools = [iterate_all(frame, a) for a in args]
            repeat = force_plain(frame, kwargs["repeat"]) if "repeat" in kwargs else 1
            return SequenceIterator([TupleValue(t) for t in itertools.product(*pools, repeat=repeat)])
        items = iterate_all(frame, args[0])
        rest = [force_plain(frame, a) for a in args[1:]]
        return SequenceIterator([TupleValue(t) for t in fn(items, *rest)])

    return handler


def accumulate_(frame, args, kwargs):
    fn = args[1] if len(args) > 1 else kwargs.get("func")
    items = iterate_all(frame, args[0])
    out, total = [], kwargs.get("initial")
    if not is_none(total):
        out.append(total)
    else:
        total = None
    for item in items:
        total = item if total is None else (binary(frame, "+", total, item) if is_none(fn) else fn.call(frame, [total, item], {}))
        out.append(total)
    return SequenceIterator(out)


def zip_longest(frame, args, kwargs):
    pools = [iterate_all(frame, a) for a in args]
    fill = kwargs.get("fillvalue", NONE)
    return SequenceIterator([TupleValue(t) for t in itertools.zip_longest(*pools, fillvalue=fill)])


def islice_(frame, args, kwargs):
    plain = [force_plain(frame, a) for a in args[1:]]
    try:
        itertools.islice((), *plain)
    except (TypeError, ValueError) as error:
        frame.raise_new(type(error), *error.args)
    limits = slice(*plain)
    return IslicedIterator(iterate(frame, args[0]), limits)


def repeat_(frame, args, kwargs):
    times = args[1] if len(args) > 1 else kwargs.get("times")
    return RepeatIterator(args[0], None if times is None else force_plain(frame, times))


def count_(frame, args, kwargs):
    start = args[0] if args else kwargs.get("start", ConstantValue(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", ConstantValue(1))
    return CountIterator(start, step)


def starmap_(frame, args, kwargs):
    return StopMapIterator(args[0], iterate(frame, args[1]))


def takewhile_(frame, args, kwargs):
    return TakeIterator(args[0], iterate(frame, args[1]))


def pairwise_(frame, args, kwargs):
    items = iterate_all(frame, args[0])
    return SequenceIterator([TupleValue(p) for p in zip(items, items[1:])])


def groupby_(frame, args, kwargs):
    from .arithmetic import equal

    key = args[1] if len(args) > 1 else kwargs.get("key")
    groups = []
    for item in iterate_all(frame, args[0]):
        found = item if is_none(key) else key.call(frame, [item], {})
        if groups and equal(frame, groups[-1][0], found):
            groups[-1][1].append(item)
        else:
            groups.append((found, [item]))
    return SequenceIterator([TupleValue([k, SequenceIterator(g)]) for k, g in groups])


def tee_(frame, args, kwargs):
    items = iterate_all(frame, args[0])
    times = force_plain(frame, args[1]) if len(args) > 1 else 2
    return TupleValue([SequenceIterator(list(items)) for _ in range(times)])


ROWS = {
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
    itertools.cycle: lambda frame, args, kwargs: CycleIterator(iterate_all(frame, args[0])),
}
