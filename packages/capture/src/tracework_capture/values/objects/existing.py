"""Rows of WRAP: instances, classes, methods, cells and Python modules that are there."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import re
import threading
import types
from typing import Any

from ...guards.access import plain_part
from ...guards.classes import lookup_class, meet
from ...guards.kinds import REFERENCES
from ...sources import Attr, Const, Member, PartItem, PlainPart, Source
from ..plain.existing import guarded_maxlen, has_an_order, wrap_set, wrap_tuple
from ..plain.mapping import DictValue
from ..plain.sequence import DequeValue, ListValue, Pending, TupleValue, is_record
from ..protocol.binding import ATOMS, CONTAINERS, BoundBuiltin, native_base
from ..protocol.calls import CALLS
from ..protocol.constant import ConstantValue
from ..protocol.value import Frame, Value
from ..protocol.wraps import guard_type, may_differ_per_call, refuse_unhashable, wraps, wraps_derived
from .class_value import ClassValue
from .enum_member import EnumMember
from .exception import ExistingException
from .function import BoundMethodValue
from .instance import ObjectValue
from .lru_cache import CachedFunction
from .namespace import NamespaceValue
from .partial import PARTS, PartialValue
from .thread_local import ThreadLocalValue
from .weak_reference import WeakReference


@wraps_derived(object)
def wrap_object(frame: Frame, obj: Any, source: Source) -> Value:
    """An instance known by its type, read attribute by attribute."""
    guard_type(frame, obj, source)
    meet(type(obj))
    return ObjectValue(type(obj), obj, source)


@wraps(threading.local)
def wrap_thread_local(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    meet(type(obj))
    return ThreadLocalValue(type(obj), obj, source)


@wraps_derived(BaseException)
def wrap_exception(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return ExistingException(obj, source)


@wraps_derived(CONTAINERS)
def wrap_container_subclass(frame: Frame, obj: Any, source: Source) -> Value:
    """An instance of a user's subclass of a built-in container."""
    kind = type(obj)
    if is_record(kind) or issubclass(kind, tuple) and kind.__module__ == "torch.return_types":
        return wrap_tuple(frame, obj, source)
    guard_type(frame, obj, source)
    native = native_base(kind)
    part: Value
    if issubclass(native, dict):
        part = mapping_part(frame, obj, source, native)
    elif native in (list, tuple, collections.deque):
        part = sequence_part(frame, obj, source, native)
    else:
        if any(lookup_class(kind, name)[1] is not native for name in ("__iter__", "__len__", "__contains__", "copy")):
            frame.break_graph("iterator_unsupported", f"a set of the class {kind.__name__}, which goes over it in its own way")
        part = wrap_set(frame, obj, source, native)
    return ObjectValue(kind, obj, source, part)


def mapping_part(frame: Frame, obj: Any, source: Source, native: type) -> Value:
    """The dict in an instance of a class derived from `native`."""
    has_an_order(frame, obj)
    part = DictValue(source, native, obj)
    if native is collections.defaultdict:
        place: Any = vars(collections.defaultdict)["default_factory"]
        factory = frame.wrap(place.__get__(obj), Member(source, place))
        part.default_factory = None if factory.is_constant() else factory
    return part


def sequence_part(frame: Frame, obj: Any, source: Source, native: Any) -> Value:
    """The list, tuple or deque in an instance of a class derived from `native`."""
    if native is tuple:
        frame.guard("LENGTH", source, tuple.__len__(obj))
    items = [Pending(item, PartItem(source, i)) for i, item in enumerate(native.__iter__(obj))]
    if native is not collections.deque:
        return ListValue(items, source) if native is list else TupleValue(items, source)
    kind = type(obj)
    if lookup_class(kind, "__len__")[1] is not native:  # which a guard would call
        frame.break_graph("value_not_known", f"a deque of the class {kind.__name__}, which has its own length")
    return DequeValue(items, source, maxlen=guarded_maxlen(frame, obj, source))


@wraps_derived(ATOMS)
def wrap_atom_subclass(frame: Frame, obj: Any, source: Source) -> Value:
    """An instance of a user's subclass of int, float, str or bytes."""
    guard_type(frame, obj, source)
    meet(type(obj))
    return ObjectValue(type(obj), obj, source, frame.wrap(plain_part(obj), PlainPart(source)))


@wraps_derived(type)
def wrap_class(frame: Frame, obj: Any, source: Source) -> Value:
    refuse_unhashable(frame, obj)
    frame.guard("IDENTITY", source, obj)
    meet(obj)
    return ClassValue(obj, source)


@wraps_derived(enum.Enum)
def wrap_enum_member(frame: Frame, obj: Any, source: Source) -> Value:
    frame.guard("IDENTITY", source, obj)
    return EnumMember(obj)


@wraps(types.CellType)
def wrap_cell(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return frame.existing_cell(obj, Attr(source, "cell_contents"), source)


@wraps(types.MethodType)
def wrap_method(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    function: Source = Const(obj.__func__) if isinstance(source, Const) else Attr(source, "__func__")
    owner: Source = Const(obj.__self__) if isinstance(source, Const) else Attr(source, "__self__")
    owner_value = frame.wrap(obj.__self__, owner)
    if owner_value.models_methods:
        return BoundBuiltin(owner_value, obj.__func__.__name__)
    return BoundMethodValue(frame.wrap(obj.__func__, function), owner_value, source)


@wraps(functools.partial)
def wrap_partial(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    function, args, keywords = (frame.wrap(getattr(obj, name), Attr(source, name)) for name in PARTS)
    return PartialValue((function, args, keywords), obj, source)


@wraps(operator.attrgetter, operator.itemgetter, operator.methodcaller)
def wrap_getter(frame: Frame, obj: Any, source: Source) -> Value:
    """operator.itemgetter(...) and its like, which nobody can change."""
    frame.guard("IDENTITY", source, obj)
    make, given = obj.__reduce__()
    named = make.keywords if type(make) is functools.partial else {}
    given = [*make.args, *given] if named else given
    args, kwargs = [frame.wrap(a, Const(a)) for a in given], {name: frame.wrap(a, Const(a)) for name, a in named.items()}
    kind: Any = type(obj)
    value = CALLS[kind].handler(frame, args, kwargs)
    value.source = source
    return value


@wraps(types.ModuleType)
@wraps_derived(types.ModuleType)
def wrap_namespace(frame: Frame, obj: Any, source: Source) -> Value:
    looks_up: Any = type(obj).__getattribute__
    if looks_up is not types.ModuleType.__getattribute__:  # looking into it runs code of the user
        return wrap_object(frame, obj, source)
    frame.guard("IDENTITY", source, obj)
    guard_type(frame, obj, source)
    return NamespaceValue(obj, source)


@wraps(re.Match)
def wrap_match(frame: Frame, obj: Any, source: Source) -> Value:
    """What a pattern found while tracing is a constant; one that the program brings is another object in each call."""
    return ConstantValue(obj, source) if type(source) is Const else wrap_object(frame, obj, source)


@wraps(*REFERENCES)
def wrap_weakref(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return WeakReference(obj, source)


@wraps(functools._lru_cache_wrapper)
def wrap_cached(frame: Frame, obj: Any, source: Source) -> Value:
    if may_differ_per_call(source) and type(getattr(obj, "__wrapped__", None)) is types.FunctionType:
        guard_type(frame, obj, source)
        return CachedFunction(obj, source, by_identity=False)
    frame.guard("IDENTITY", source, obj)
    return CachedFunction(obj, source)
