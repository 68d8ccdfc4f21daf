"""What inspect and dataclasses say of functions and classes: signatures, which guards see change, and fields."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from ...guards.classes import HEAP_TYPE, NO_ATTRIBUTE, lookup_class
from ...guards.signatures import SameSignature, signature_facts
from ...sources import ClassAttr, Const, DictItem, Source
from ..plain.sequence import TupleValue
from ..protocol.binding import class_value
from ..protocol.calls import Handler, calls
from ..protocol.constant import ConstantValue, fold_literal, force_plain, literal
from ..protocol.value import NEW, Frame, Value
from .class_value import ClassValue
from .function import BoundMethodValue, FunctionValue, NewFunctionValue
from .partial import PartialValue

_dataclasses: Any = dataclasses
"""The module with what it has for itself."""


def is_dataclass(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls = args[0].cls if isinstance(args[0], ClassValue) else args[0].python_type()
    return ConstantValue(hasattr(cls, "__dataclass_fields__"))


def guard_fields(frame: Frame, cls: type) -> None:
    """The fields of a class stay the same objects in the same order, if it is a dataclass."""
    table = getattr(cls, "__dataclass_fields__", None)
    if type(table) is dict:
        source = ClassAttr(Const(cls, cls.__name__), "__dataclass_fields__")
        frame.guard("DICT_KEYS", source, tuple(table))
        for name, field in table.items():
            frame.guard("IDENTITY", DictItem(source, name), field)


def fields(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls = args[0].cls if isinstance(args[0], ClassValue) else args[0].python_type()
    guard_fields(frame, cls)
    try:
        found = dataclasses.fields(cls)
    except TypeError as error:
        return frame.raise_new(TypeError, *error.args)
    return TupleValue([literal(frame, f) for f in found])


def replace(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0]
    if not hasattr(value.python_type(), "__dataclass_fields__"):
        return frame.break_graph("call_unknown", "dataclasses.replace of no dataclass")
    guard_fields(frame, value.python_type())
    cls: Any = value.python_type()
    declared = cls.__dataclass_fields__.values()
    given = [field for field in declared if field._field_type is not _dataclasses._FIELD_CLASSVAR and field.name in kwargs]
    kept = [f for f in declared if f._field_type is not _dataclasses._FIELD_CLASSVAR and f.init and f.name not in kwargs]
    if not all(f.init for f in given) or any(
        f._field_type is _dataclasses._FIELD_INITVAR and f.default is dataclasses.MISSING for f in kept
    ):
        return frame.break_graph("call_unknown", "dataclasses.replace with fields that it refuses, or without some that it needs")
    changes = {**kwargs, **{f.name: value.getattr(frame, f.name) for f in kept}}
    return class_value(frame, value.python_type()).call(frame, [], changes)


def of_signature(fn: Callable[..., object]) -> Handler:
    """A function of inspect that says what arguments a callable takes."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        name = f"inspect.{fn.__name__}"
        if len(args) != 1:
            return frame.break_graph("builtin_unsupported", f"{name} with these arguments")
        value, options = args[0], plain_options(frame, kwargs)
        asked = stand_in(frame, value, name)
        if asked is not None:
            return fold_literal(frame, fn, asked, **options)
        if isinstance(value, ClassValue) and value.cls.__flags__ & HEAP_TYPE:
            guard_signature_of_class(frame, value.cls, name)
        try:
            return fold_literal(frame, fn, value.real(), **options)
        except LookupError:
            return frame.break_graph("builtin_unsupported", f"{name} of {value.describe()}")

    return row


def stand_in(frame: Frame, value: Value, name: str) -> Callable[..., Any] | None:
    """What has the signature of a function, a method or a partial of one, guarded; None for other callables."""
    found: Callable[..., Any] | None
    if isinstance(value, FunctionValue):
        found = plain_function(frame, value)
        guard_signature(frame, value)
        return found
    if isinstance(value, BoundMethodValue):
        found = stand_in(frame, value.function, name)
        return None if found is None else types.MethodType(found, object())
    if not isinstance(value, PartialValue):
        return None
    function, positional, keywords = value.parts
    found = stand_in(frame, function, name)
    named = {key.constant(): given for key, given in keywords.all_items(frame)}
    if found is None or not value.is_flat() or not all(given.is_constant() for given in named.values()):
        frame.break_graph("builtin_unsupported", f"{name} of {value.describe()}")
    made = functools.partial(found, *positional.all_items(frame), **{key: given.constant() for key, given in named.items()})
    try:
        inspect.signature(made)
    except ValueError:
        frame.break_graph("builtin_unsupported", f"{name} of {value.describe()}, which has arguments that do not fit")
    return made


def guard_signature_of_class(frame: Frame, cls: type, name: str) -> None:
    """The methods that say what arguments a class takes stay as they are; which ones those are, the look-ups guard."""
    asked = [lookup_class(cls, method)[0] for method in ("__new__", "__init__")]
    says = [lookup_class(cls, attribute)[0] for attribute in ("__signature__", "__wrapped__", "__text_signature__")]
    own_call = lookup_class(type(cls), "__call__")[0] is not vars(type)["__call__"]
    if own_call or id(cls) in frame.memory.new_classes or any(each is not NO_ATTRIBUTE for each in says[:2]):
        frame.break_graph("builtin_unsupported", f"{name} of class {cls.__qualname__}, which says itself what it takes")
    for method in asked:
        if isinstance(method, types.FunctionType):
            guard_facts(frame, method, Const(method, method.__qualname__))


def guard_signature(frame: Frame, value: FunctionValue) -> None:
    """What inspect.signature reads of an existing function stays as it is."""
    if value.mutability is not NEW:
        guard_facts(frame, value.real(), value.base)


def guard_facts(frame: Frame, function: Any, source: Source | None) -> None:
    """All that says what arguments a function takes stays the same objects."""
    facts = signature_facts(function)
    if not isinstance(facts[-1], types.NoneType):
        frame.break_graph("builtin_unsupported", f"inspect.signature of {function.__qualname__}, which wraps no function")

    frame.guard("PREDICATE", source, SameSignature(facts))


def plain_options(frame: Frame, kwargs: dict[str, Value]) -> dict[str, Any]:
    return {k: force_plain(frame, v) for k, v in kwargs.items()}


def plain_function(frame: Frame, value: FunctionValue) -> types.FunctionType:
    """The function, or a stand-in with the same signature for one that the traced program made."""
    if not isinstance(value, NewFunctionValue):
        return value.function
    try:
        if value.attributes:
            raise LookupError("what it wraps")
        defaults, named, annotations = ([v.real() for v in values] for values in value.signature_parts())
    except LookupError:
        what = f"inspect.signature of {value.describe()}, made with values of the program"
        return frame.break_graph("builtin_unsupported", what)
    cells = tuple(types.CellType() for _ in value.code.co_freevars)
    made = types.FunctionType(value.code, value.globals, value.code.co_name, tuple(defaults) or None, cells)
    made.__kwdefaults__ = dict(zip(value.kwdefault_names(), named)) or None
    made.__annotations__ = dict(zip(annotations[::2], annotations[1::2]))
    return made


calls(
    {
        dataclasses.is_dataclass: is_dataclass,
        dataclasses.fields: fields,
        dataclasses.replace: replace,
        inspect.signature: of_signature(inspect.signature),
        inspect.getfullargspec: of_signature(inspect.getfullargspec),
    }
)
