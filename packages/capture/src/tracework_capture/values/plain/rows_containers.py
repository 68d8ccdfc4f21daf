"""len, the constructors of containers and of numbers, range, slice."""

from __future__ import annotations

import collections
import types

from ..protocol.calls import Handler, calls
from ..protocol.constant import ConstantValue, fold, force_plain
from ..protocol.iteration import each_of, iterate_all
from ..protocol.kinds import AbstractTensor
from ..protocol.operators import binary
from ..protocol.value import Frame, Value
from .mapping import DictValue, factory_of
from .mapping_proxy import proxy_row
from .ranges import RangeValue, SliceValue
from .sequence import DequeValue, ListValue, TupleValue
from .sets import SetValue, new_set

NONE = ConstantValue(None)


def len_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[0].length(frame)


def list_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(iterate_all(frame, args[0], asks_length=True) if args else [])


def tuple_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and type(args[0]) is TupleValue and args[0].cls is tuple:
        return args[0]
    return TupleValue(iterate_all(frame, args[0], asks_length=True) if args else [])


def mapping(cls: type) -> Handler:
    """dict and its relatives."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        takes_factory = cls is collections.defaultdict
        made = DictValue(cls=cls, default_factory=factory_of(frame, args[0]) if args and takes_factory else None)
        made.call_method(frame, "update", args[takes_factory:], kwargs)
        return made

    return handler


def count_elements(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The loop of collections.Counter that C has."""
    counts = args[0]
    for item in each_of(frame, args[1]):
        before = counts.call_method(frame, "get", [item, ConstantValue(0)], {})
        counts.setitem(frame, item, binary(frame, "+", before, ConstantValue(1)))
    return NONE


def deque_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("iterable", "maxlen"), args)) | kwargs
    if len(given) < len(args) + len(kwargs) or not given.keys() <= {"iterable", "maxlen"}:
        return fold(frame, collections.deque, args, kwargs)  # an error
    limit = force_plain(frame, given.get("maxlen", NONE))
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        return fold(frame, collections.deque, [ConstantValue(()), given["maxlen"]])  # an error
    items = iterate_all(frame, given["iterable"]) if "iterable" in given else []
    return DequeValue(items if limit is None else items[len(items) - limit if len(items) > limit else 0 :], maxlen=limit)


def set_(cls: type) -> Handler:
    """set and frozenset."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) > 1 or kwargs:
            return fold(frame, cls, args, kwargs)  # an error
        return new_set(frame, cls, args[0]) if args else SetValue(frame, [], cls=cls)

    return handler


def range_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    bounds = [force_plain(frame, a.as_place(frame)) for a in args]
    try:
        return RangeValue(range(*bounds))
    except (TypeError, ValueError) as error:
        return frame.raise_new(type(error), *error.args)


def slice_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not 1 <= len(args) <= 3 or kwargs:
        return fold(frame, slice, args, kwargs)  # an error
    parts = list(args)
    if len(parts) == 1:
        parts = [NONE, parts[0], NONE]
    return SliceValue(*(parts + [NONE] * (3 - len(parts))))


def number(cls: type) -> Handler:
    """int, float, complex."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            return fold(frame, cls, args, kwargs)
        value, name = args[0], f"__{cls.__name__}__"
        if isinstance(value, AbstractTensor):
            return value.call_method(frame, name, [], {})
        if not value.is_constant() and hasattr(value.python_type(), name):
            found = value.call_method(frame, name, [], {})
            if found.python_type() is not cls:
                frame.break_graph("builtin_unsupported", f"{name} that does not give {cls.__name__}")
            return found
        return fold(frame, cls, args, kwargs)

    return handler


def bool_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs:
        return fold(frame, bool, args, kwargs)
    return args[0].deferred_truth(frame) or ConstantValue(args[0].truth(frame))


calls(
    {
        len: len_,
        list: list_,
        tuple: tuple_,
        **{cls: mapping(cls) for cls in (dict, collections.OrderedDict, collections.defaultdict)},
        collections.deque: deque_,
        collections._count_elements: count_elements,  # type: ignore[attr-defined]
        **{cls: set_(cls) for cls in (set, frozenset)},
        range: range_,
        slice: slice_,
        int: number(int),
        float: number(float),
        complex: number(complex),
        bool: bool_,
        types.MappingProxyType: proxy_row,
    }
)
