"""Making instances: what a call of a class does, by `__new__` and `__init__` of the program, and by those of C that are modelled."""

from __future__ import annotations

import collections
import inspect
import types
from collections.abc import Callable
from typing import Any

from ...guards.classes import attributes_of, lookup_class, module_of
from ..plain.mapping import DictValue, factory_of
from ..plain.sequence import NONE, DequeValue, ListValue, TupleValue, is_record
from ..plain.sets import SetValue, new_set
from ..protocol.binding import ATOMS, C_METHODS, WITHOUT_PART, bind_static, class_value, native_base, python_new
from ..protocol.calls import CALLS
from ..protocol.constant import fold_plain, literal
from ..protocol.iteration import iterate_all
from ..protocol.kinds import AbstractClass
from ..protocol.properties import function_value
from ..protocol.registry import Registry
from ..protocol.value import Frame, Value
from .controls import forbid
from .enum_member import has_members, member_of
from .exception import BUILTIN_INITS, BUILTIN_NEWS, ExceptionValue
from .exception_group import make_group
from .function import FunctionValue, bind_arguments
from .instance import ObjectValue
from .refused_classes import refuse_class


def construct(frame: Frame, class_val: AbstractClass, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(*args, **kwargs)"""
    cls = class_val.cls
    if "_dynamo_forbidden" in attributes_of(cls):
        forbid(cls, None, frame, args, kwargs)
    row = CALLS.get(cls)
    if row is not None:
        return row.handler(frame, args, kwargs)
    if has_members(frame, cls, "__call__"):
        return member_of(frame, cls, args, kwargs)
    if issubclass(cls, BaseException):
        return make_exception(frame, cls, args, kwargs)
    if is_record(cls):
        return make_namedtuple(frame, cls, args, kwargs)
    if module_of(cls) == "torch.return_types":
        return make_result(frame, cls, args, kwargs)
    for base, (is_one, make) in MADE_IN_GRAPHS.items():
        if issubclass(cls, base) and is_one(cls):
            return make(frame, cls, args, kwargs)
    if not has_modelled_instances(cls):
        refuse_class(frame, cls)
    meta_call, owner = lookup_class(type(cls), "__call__")
    if owner is not type and not isinstance(meta_call, types.WrapperDescriptorType):  # which binary classes have
        if isinstance(meta_call, C_METHODS):
            frame.break_graph("call_unknown", f"{type(cls).__name__}.__call__ is a {type(meta_call).__name__}")
        return bind_static(frame, class_val, type(cls), owner, meta_call, "__call__").call(frame, args, kwargs)
    return type_call(frame, class_val, args, kwargs)


Make = Callable[[Frame, Any, list[Value], dict[str, Value]], Value]
MADE_IN_GRAPHS: Registry[type, tuple[Callable[[type], bool], Make]] = Registry("MADE_IN_GRAPHS")
"""Class of C -> whether the constructor of a class derived from it is called by the graph, and what records that call."""
MODELLED_BASES: Registry[type, Callable[[type], bool]] = Registry("MODELLED_BASES")
"""Class of C, of storeys above -> whether instances of a class derived from it are modelled, when a `__new__` in Python makes them."""


def has_modelled_instances(cls: type) -> bool:
    """Whether a `__new__` in Python makes the instances of a class, and they are those of MODELLED_BASES."""
    of_above = any(issubclass(cls, base) and is_one(cls) for base, is_one in MODELLED_BASES.items())
    return of_above and python_new(cls) is not None


def type_call(frame: Frame, class_val: AbstractClass, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """type.__call__: __new__, then __init__."""
    cls = class_val.cls
    new = python_new(cls)
    if new is not None:
        made = function_value(frame, new).call(frame, [class_val, *args], kwargs)
    else:
        made_by, _ = lookup_class(cls, "__new__")
        if not isinstance(made_by, types.BuiltinFunctionType) or made_by.__name__ != "__new__":
            frame.break_graph("call_unknown", f"{cls.__name__}.__new__ is a {type(made_by).__name__}")
        made = new_object(frame, [class_val, *args], kwargs)
    if cls in made.python_type().__mro__:  # issubclass would ask the metaclass
        init, owner = lookup_class(made.python_type(), "__init__")
        if isinstance(init, types.FunctionType):
            returned = function_value(frame, init).call(frame, [made, *args], kwargs)
            if returned is not NONE and not (returned.is_constant() and returned.constant() is None):
                kind = returned.python_type().__name__
                return frame.raise_new(TypeError, f"__init__() should return None, not '{kind}'")
        elif not isinstance(init, C_METHODS):
            frame.break_graph("call_unknown", f"{cls.__name__}.__init__ is a {type(init).__name__}")
        elif init is object.__init__ and (args or kwargs) and lookup_class(cls, "__new__")[1] is object:
            return frame.raise_new(TypeError, f"{cls.__name__}() takes no arguments")
        elif init is not object.__init__ and getattr(made, "part", None) is not None:
            init_part(frame, made, args, kwargs)
        elif owner is types.SimpleNamespace:
            init_namespace(frame, made, args, kwargs)
        elif init is not object.__init__:  # of a class in C that makes do with object.__new__
            frame.break_graph("call_unknown", f"construction of {cls.__module__}.{cls.__name__}")
    return made


def new_object(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """object.__new__(cls) or that of a built-in container."""
    if not args or not isinstance(args[0], AbstractClass):
        return frame.break_graph("call_unknown", "__new__ of no class")
    cls = args[0].cls
    refuse_class(frame, cls)
    native = native_base(cls)
    if native is object and (len(args) > 1 or kwargs) and takes_no_arguments(cls):
        frame.break_graph("call_unknown", f"object.__new__({cls.__name__}, ...)")
    if native is object and cls.__flags__ & inspect.TPFLAGS_IS_ABSTRACT:
        fold_plain(frame, object.__new__, cls)  # raises
    if native is object or native in WITHOUT_PART:
        return ObjectValue(cls)
    part: Any
    if native in (tuple, frozenset):
        if kwargs and lookup_class(cls, "__init__")[0] is object.__init__:  # as tuple has it; another __init__ takes them
            return frame.raise_new(TypeError, f"{native.__name__}() takes no keyword arguments")
        if native is frozenset:
            part = new_set(frame, frozenset, args[1] if len(args) > 1 else TupleValue([]))
        else:
            part = TupleValue(iterate_all(frame, args[1], asks_length=True) if len(args) > 1 else [])
    elif native in ATOMS:
        part = CALLS[native].handler(frame, args[1:], kwargs)
        if part.python_type() is not native:
            frame.break_graph("call_unknown", f"{native.__name__}.__new__({cls.__name__}, ...) of {part.describe()}")
    elif issubclass(native, dict):
        part = DictValue(cls=native)
    else:
        part = SetValue(frame, []) if native is set else ListValue([]) if native is list else DequeValue([])
    return part if cls is native else ObjectValue(cls, part=part)


def takes_no_arguments(cls: type) -> bool:
    """Whether object.__new__ refuses arguments for cls: they are for an __init__ that takes them, and only if __new__ is its own."""
    return python_new(cls) is not None or lookup_class(cls, "__init__")[0] is object.__init__


def init_part(frame: Frame, made: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """list.__init__, dict.__init__, ... on a new instance of a subclass."""
    native = native_base(made.cls)
    if native in (tuple, frozenset):
        return NONE
    if native is collections.defaultdict and args:
        made.part.default_factory = factory_of(frame, args[0])
        args = args[1:]
    if args or kwargs:
        name = "extend" if native is list else "update" if native is not collections.deque else "extend"
        made.part.call_method(frame, name, list(args), kwargs)
    return NONE


def init_namespace(frame: Frame, made: Any, args: list[Value], kwargs: dict[str, Value]) -> None:
    """types.SimpleNamespace.__init__"""
    if args:
        frame.break_graph("call_unknown", "types.SimpleNamespace with positional arguments")
    for name, value in kwargs.items():
        made.set_field(frame, name, value)


def make_namedtuple(frame: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(...) of a namedtuple class; subclasses with their own __new__ run it."""
    new, owner = python_new(cls), lookup_class(cls, "__new__")[1]
    made_by_collections = "_fields" in owner.__dict__
    if not made_by_collections:
        return function_value(frame, new).call(frame, [class_value(frame, cls), *args], kwargs)
    called = class_value(frame, cls)
    if called.source is None:  # made here: nobody else sees its defaults, and it may be gone when guards are asked
        known = {
            name: literal(frame, default) for name, default in cls._field_defaults.items() if name not in cls._fields[: len(args)]
        }
        kwargs = known | kwargs
    function = function_value(frame, new)
    assert isinstance(function, FunctionValue)
    bound = bind_arguments(frame, function, [called, *args], kwargs)
    return TupleValue([bound[n] for n in cls._fields], cls=cls)


def make_result(frame: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(sequence) of a structure that torch functions return; C says what it takes."""
    items = iterate_all(frame, args[0]) if len(args) == 1 and not kwargs else []
    if len(items) != cls.n_fields or cls.n_fields != cls.n_sequence_fields:
        frame.break_graph("call_unknown", f"{cls.__name__} with these arguments")
    return TupleValue(items, cls=cls)


def make_exception(frame: Frame, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(*args, **kwargs) for an exception class."""
    init = cls.__init__
    if cls.__new__ is BaseExceptionGroup.__new__:
        return make_group(frame, cls, args, kwargs)
    if cls.__new__ not in BUILTIN_NEWS or (issubclass(cls, OSError) and len(args) > 1):
        return frame.break_graph("call_unknown", f"construction of {cls.__name__}")
    if init in BUILTIN_INITS and not kwargs:
        return ExceptionValue(cls, args)
    if not hasattr(init, "__code__"):
        return frame.break_graph("call_unknown", f"construction of {cls.__name__}")
    made = ExceptionValue(cls, args)
    function = function_value(frame, init, None)
    assert isinstance(function, FunctionValue)
    frame.inline(function, [made, *args], kwargs)
    return made
