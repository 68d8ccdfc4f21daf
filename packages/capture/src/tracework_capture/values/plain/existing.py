"""Rows of WRAP: lists, tuples, dicts, sets, ranges, slices and iterators that are there, and what is known as a constant is."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import re
import types
import typing
from typing import Any

import numpy
import torch

from ...atoms import ATOM_TYPES
from ...guards.access import goes_over
from ...guards.classes import lookup_class
from ...guards.kinds import items_in_order, members_of
from ...sources import Attr, Const, Item, Source
from ..protocol.constant import ConstantValue
from ..protocol.record_keys import record_key
from ..protocol.user_keys import has_user_key
from ..protocol.value import Frame, Value
from ..protocol.wraps import guard_type, wraps
from .iterators import NATIVE_ITERATORS, OVER_SEQUENCES, ExistingIterator, ExistingSequenceIterator
from .mapping import DictValue
from .ranges import RangeValue, SliceValue
from .sequence import DequeValue, ListValue, TupleValue, pending_items
from .sets import SetValue


@wraps(list)
def wrap_list(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return ListValue(pending_items(obj, source), source)


@wraps(tuple, torch.Size)
def wrap_tuple(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    frame.guard("LENGTH", source, len(obj))
    return TupleValue(pending_items(obj, source), source, type(obj), obj)


@wraps(collections.deque)
def wrap_deque(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return DequeValue(pending_items(obj, source), source, maxlen=guarded_maxlen(frame, obj, source))


def guarded_maxlen(frame: Frame, obj: Any, source: Source) -> int | None:
    """The most items that an existing deque, or an instance of a subclass, keeps; None where there is no limit."""
    kind = type(obj)
    if any(lookup_class(kind, name)[0] is not getattr(collections.deque, name) for name in ("maxlen", "__getattribute__")):
        return frame.break_graph(
            "value_not_known", f"maxlen of a deque of the class {kind.__name__}, which reads it in its own way"
        )
    frame.guard("IS_NONE" if obj.maxlen is None else "CONSTANT", Attr(source, "maxlen"), obj.maxlen)
    most: int | None = obj.maxlen
    return most


@wraps(dict, collections.OrderedDict, collections.defaultdict)
def wrap_dict(frame: Frame, obj: Any, source: Source) -> Value:
    if any(table == id(obj) for table, _ in frame.memory.globals_written):
        frame.break_graph("side_effect_unknown", "a dict is looked at after functions that have it as their globals wrote to it")
    guard_type(frame, obj, source)
    has_an_order(frame, obj)
    factory = None
    if type(obj) is collections.defaultdict and obj.default_factory is not None:
        factory = frame.wrap(obj.default_factory, Attr(source, "default_factory"))
    return DictValue(source, type(obj), obj, factory)


def has_an_order(frame: Frame, obj: Any) -> None:
    """Breaks where dict's own methods took keys out of an OrderedDict, whose order still has them."""
    try:
        items_in_order(obj)
    except KeyError:
        frame.break_graph("operation_unknown", "an OrderedDict that dict's own methods changed")


@wraps(set, frozenset)
def wrap_set(frame: Frame, obj: Any, source: Source, cls: type | None = None) -> Value:
    guard_type(frame, obj, source)
    if any(record_key(member) is not None for member in obj):
        frame.break_graph("unhashable_value", "a set of objects that compare by their fields")
    frame.guard("SET_MEMBERS", source, members_of(obj))
    made = SetValue(frame, [frame.wrap(m, Const(m)) for m in obj], source, cls or type(obj), order=obj)
    if any(map(has_user_key, made.members)):
        frame.break_graph("unhashable_value", "a set that is there, of objects that define equality themselves")
    return made


@wraps(range)
def wrap_range(frame: Frame, obj: Any, source: Source) -> Value:
    frame.guard("CONSTANT_RANGE", source, (obj.start, obj.stop, obj.step))
    return RangeValue(obj, source)


@wraps(slice)
def wrap_slice(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    start, stop, step = (frame.wrap(getattr(obj, n), Attr(source, n)) for n in ("start", "stop", "step"))
    return SliceValue(start, stop, step, source)


@wraps(*NATIVE_ITERATORS)
def wrap_iterator(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return existing_iterator(frame, obj, source) or ExistingIterator(obj, source)


def existing_iterator(frame: Frame, obj: Any, source: Source) -> Value | None:
    """The value of an existing iterator that can be asked here; else None."""
    if type(obj) in OVER_SEQUENCES and type(source) is not Const:
        try:
            goes_over(obj)
        except LookupError:
            return None
        return ExistingSequenceIterator(obj, source)
    found: Value | None = frame.services.unstarted_generator(frame, obj, source)
    return found


@wraps(
    types.CodeType,
    inspect.Signature,
    inspect.Parameter,
    dataclasses.Field,
    property,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    typing.TypeVar,
    type(typing.Any),
    type(typing.Optional[int]),  # noqa: UP045
    type(dataclasses.MISSING),
    classmethod,
    staticmethod,
    numpy.finfo,
    numpy.iinfo,
)
def wrap_known(frame: Frame, obj: Any, source: Source) -> Value:
    """Immutable objects that are known by identity (code objects, properties, signatures)."""
    frame.guard("IDENTITY", source, obj)
    return ConstantValue(obj, source)


@wraps(re.Pattern, torch.finfo, torch.iinfo)
def wrap_equal(frame: Frame, obj: Any, source: Source) -> Value:
    """Immutable objects of which equal ones do the same (patterns, the limits of a dtype)."""
    frame.guard("CONSTANT", source, obj)
    return ConstantValue(obj, source)


ALIASES = (types.GenericAlias, types.UnionType)


@wraps(*ALIASES)
def wrap_alias(frame: Frame, obj: Any, source: Source) -> Value:
    """A generic alias or a union, which is made anew wherever it is written."""
    guard_alias(frame, obj, source)
    return ConstantValue(obj, source)


def guard_alias(frame: Frame, obj: Any, source: Source) -> None:
    """Its parts one by one: int | str equals str | int."""
    guard_type(frame, obj, source)
    arguments = Attr(source, "__args__")
    frame.guard("LENGTH", arguments, len(obj.__args__))
    parts: list[tuple[Source, Any]] = [(Item(arguments, place), part) for place, part in enumerate(obj.__args__)]
    if type(obj) is types.GenericAlias:
        parts += [(Attr(source, name), getattr(obj, name)) for name in ("__origin__", "__unpacked__")]
    for place, part in parts:
        if type(part) in ALIASES:
            guard_alias(frame, part, place)
        else:
            frame.guard("CONSTANT" if type(part) in ATOM_TYPES else "IDENTITY", place, part)
