"""getattr and its family, isinstance, issubclass, type, id, callable, hash, vars, dir, super, print."""

from __future__ import annotations

import abc
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from ...code_origin import is_installed
from ...graph.replaced import identity_observed
from ...guards.classes import NO_ATTRIBUTE, find, lookup_class, module_of, resolution_order
from ...signals import let_through
from ...sources import Const
from ..number.deferred import DeferredValue, place_here
from ..number.floats import DeferredFloat
from ..number.symint import SymNumber
from ..plain.mapping import DictValue
from ..plain.sequence import NONE, ListValue, TupleValue
from ..plain.str_repr import shown
from ..protocol.binding import class_value, is_callable
from ..protocol.calls import calls
from ..protocol.constant import ConstantValue, attribute_name, fold, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.properties import function_value
from ..protocol.user_keys import hash_of
from ..protocol.value import NEW, Frame, SymbolicRaise, Value
from .class_statement import class_of_parts
from .class_value import ClassValue
from .construction import new_object, type_call
from .exception import attribute_of_exception
from .function import FunctionValue
from .identity_numbers import IdentityNumber
from .instance import ObjectValue
from .rows_frames import own_frame
from .super_object import super_


def classes_of(frame: Frame, value: Value) -> Any:
    """The Python object to hand to isinstance: a class, a union, or nested tuples of them."""
    if isinstance(value, TupleValue):
        return tuple(classes_of(frame, v) for v in value.all_items(frame))
    if isinstance(value, ObjectValue) and type(value.obj) is type(typing.Mapping):
        return typing.get_origin(value.identity(frame))  # which it asks
    try:
        return value.real()
    except LookupError:
        return force_plain(frame, value)


def isinstance_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[0], ObjectValue) and args[0].pretends(frame):
        return frame.break_graph("call_unknown", f"isinstance of {args[0].describe()}, whose class says what its __class__ is")
    if isinstance(args[1], TupleValue):
        return ConstantValue(any(isinstance_(frame, [args[0], cls], {}).constant() for cls in args[1].all_items(frame)))
    hook = hook_of(args[1], "__instancecheck__")
    if hook is not None and args[0].python_type() is args[1].real():
        return ConstantValue(True)  # the hook is not asked
    if hook is not None:
        return ConstantValue(function_value(frame, hook).call(frame, [args[1], args[0]], {}).truth(frame))
    classes = classes_of(frame, args[1])
    found = known_relation(frame, is_instance, args[0], classes)
    resolution_order(args[0].python_type())
    note_registered(frame, args[0].python_type(), classes)
    if not found.constant():
        guard_unrelated(frame, args, args[0].python_type(), classes)
    guard_members(frame, args[0], classes)
    return found


def guard_members(frame: Frame, value: Value, classes: Any) -> None:
    """A protocol asks an object for the names of its members, wherever it has them."""
    for cls in typing.get_args(classes) if isinstance(classes, types.UnionType) else (classes,):
        if getattr(cls, "_is_protocol", False) and isinstance(value, ObjectValue) and value.source is not None:
            protocols = [base for base in cls.__mro__ if vars(base).get("_is_protocol")]
            for name in {n: None for p in protocols for n in (*vars(p), *p.__annotations__) if not n.startswith("_")}:
                frame.guard("HAS_ATTR" if hasattr(value.obj, name) else "LACKS_ATTR", value.source, name)


def guard_unrelated(frame: Frame, args: list[Value], kind: type, classes: Any) -> None:
    """A class may be registered with an abstract one later; what is a subclass by its bases, or is registered, stays one."""
    for cls in typing.get_args(classes) if isinstance(classes, types.UnionType) else (classes,):
        asks_registry = getattr(type(cls), "__subclasscheck__", None) is abc.ABCMeta.__subclasscheck__
        if asks_registry and not any(may_be_local_class(a, c) for a, c in zip(args, (kind, cls))):
            frame.guard("NOT_SUBCLASS", Const(cls, cls.__qualname__), kind)


def note_registered(frame: Frame, kind: Any, classes: Any) -> None:
    """That a class is registered with an abstract one says nothing of what another process registers."""
    for cls in typing.get_args(classes) if isinstance(classes, types.UnionType) else (classes,):
        asks_registry = getattr(type(cls), "__subclasscheck__", None) is abc.ABCMeta.__subclasscheck__
        if not asks_registry or not isinstance(kind, type) or getattr(cls, "_is_protocol", False):
            continue
        by_python = module_of(cls) in PYTHON_MODULES and (module_of(kind) in PYTHON_MODULES or cls.__subclasshook__(kind) is True)
        if not by_python and not any(base is cls for base in resolution_order(kind)) and issubclass(kind, cls):
            frame.memory.only_now = f"{kind.__qualname__} is registered with {cls.__qualname__}"


PYTHON_MODULES = frozenset({"builtins", "collections", "collections.abc", "numbers", "types"})
"""Where the abstract classes of Python and those that it registers with them are."""


def may_be_local_class(value: Value, cls: type) -> bool:
    """Whether a class of this value may be one that the traced program defines, which each call has anew."""
    return value.source is None and "<locals>" in cls.__qualname__


PURE_HOOKS = ("abc", "typing", "typing_extensions", "enum", "torch")
"""Packages whose metaclasses answer from the class alone."""


def hook_of(value: Value, name: str) -> types.FunctionType | None:
    """The program's own function that answers isinstance or issubclass for a class; None where Python does."""
    if not isinstance(value, ClassValue):
        return None
    hook, _ = lookup_class(type(value.cls), name)
    if not isinstance(hook, types.FunctionType) or hook.__globals__.get("__name__", "").partition(".")[0] in PURE_HOOKS:
        return None
    return hook


def known_relation(frame: Frame, ask: Callable[[Any, Any], bool], value: Any, classes: Any) -> ConstantValue:
    """isinstance or issubclass, asked now."""
    try:
        return ConstantValue(ask(value, classes))
    except TypeError as error:
        return frame.raise_new(TypeError, *error.args)
    except Exception as error:  # a hook of the class needs what the traced program has not made yet, or raises
        let_through(error)
        return frame.break_graph("call_unknown", f"a check of classes, which raises {type(error).__name__}")


def is_instance(value: Value, classes: Any) -> bool:
    """isinstance by type, unless the kind of value has a rule of its own."""
    if isinstance(classes, types.UnionType):
        return any(is_instance(value, c) for c in typing.get_args(classes))
    found = value.is_instance(classes)
    if found is not None:
        return found
    obj = getattr(value, "obj", None)
    if obj is not None and not value.is_constant():
        return isinstance(obj, classes)
    kind = value.python_type()
    if value.is_constant():
        return isinstance(value.constant(), classes)
    if isinstance(value, ObjectValue) and getattr(classes, "_is_protocol", False):
        return _follows(kind, classes)
    if isinstance(value, ClassValue) and getattr(classes, "_is_protocol", False):
        raise LookupError(f"what {value.describe()} has itself")
    return issubclass(kind, classes)


def _follows(kind: type, protocol: type) -> bool:
    """Whether new instances of a class follow a protocol by what the class has; what else they have, plain Python is asked."""
    try:
        if issubclass(kind, protocol):
            return True
    except TypeError:  # a protocol with data members is not asked of classes
        pass
    raise LookupError(f"an instance of {kind.__name__} that is yet to be made")


def issubclass_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[1], TupleValue):
        return ConstantValue(any(issubclass_(frame, [args[0], cls], {}).constant() for cls in args[1].all_items(frame)))
    hook = hook_of(args[1], "__subclasscheck__")
    if hook is not None:
        return ConstantValue(function_value(frame, hook).call(frame, [args[1], args[0]], {}).truth(frame))
    kind, classes = classes_of(frame, args[0]), classes_of(frame, args[1])
    found = known_relation(frame, issubclass, kind, classes)
    if isinstance(kind, type):
        resolution_order(kind)
    note_registered(frame, kind, classes)
    if not found.constant():
        guard_unrelated(frame, args, kind, classes)
    return found


def getattr_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name = attribute_name(frame, args[1])
    if len(args) < 3:
        return attribute_of_exception(frame, args[0], name)
    try:
        return args[0].getattr(frame, name)
    except SymbolicRaise as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return args[2]
        raise


def hasattr_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    try:
        args[0].getattr(frame, attribute_name(frame, args[1]))
    except SymbolicRaise as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return ConstantValue(False)
        raise
    return ConstantValue(True)


def setattr_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(frame, attribute_name(frame, args[1]), args[2])
    return NONE


def delattr_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].delattr(frame, attribute_name(frame, args[1]))
    return NONE


def type_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 3 and not kwargs and type(args[1]) is TupleValue and type(args[2]) is DictValue:
        return class_of_parts(frame, args)
    if len(args) != 1:
        return frame.break_graph("class_building", "type() with these arguments")
    return class_value(frame, args[0].python_type())


def id_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Of an existing object, module, function or class, which stays the same one; of tensors, which change from call to call, and of what the
    program makes it is known when the graph has run."""
    found, place = None, place_here(frame)
    if isinstance(args[0], ObjectValue):
        found = args[0].identity(frame)
    elif isinstance(args[0], (FunctionValue, ClassValue)) and args[0].mutability is not NEW:
        found = args[0].real()
        frame.guard("IDENTITY", args[0].source, found)
    if found is not None:
        frame.memory.only_now = "id() is another number in each process"
        return ConstantValue(id(found))
    if not isinstance(args[0], AbstractTensor) and args[0].mutability is not NEW or place in frame.plan.learnt.read_while_tracing:
        return frame.break_graph("builtin_unsupported", f"id() of {args[0].describe()}")
    identity_observed(frame, args[0])
    return IdentityNumber(args[0], place)


def callable_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(is_callable(args[0]))


def hash_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(hash_of(frame, args[0]))


def vars_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return own_frame("vars")(frame, args, kwargs)
    try:
        return args[0].getattr(frame, "__dict__")
    except SymbolicRaise as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
    return frame.raise_new(TypeError, "vars() argument must have __dict__ attribute")


def dir_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return own_frame("dir")(frame, args, kwargs)
    value = args[0]
    if value.is_constant():
        return fold(frame, dir, [value])
    if isinstance(value, ClassValue) and type(value.cls).__dir__ is vars(type)["__dir__"]:
        return ListValue([ConstantValue(name) for name in names_of_class(frame, value.cls)])
    if type(value) is not ObjectValue or value.part is not None or lookup_class(value.cls, "__dir__")[0] is not object.__dir__:
        return frame.break_graph("builtin_unsupported", f"dir() of {value.describe()}")
    own = [force_plain(frame, key) for key in value.getattr(frame, "__dict__").unpack(frame)] if value.cls.__dictoffset__ else []
    return ListValue([ConstantValue(name) for name in sorted({*own, *names_of_class(frame, value.cls)})])


def names_of_class(frame: Frame, cls: type) -> list[str]:
    """dir() of a class, which a guard asks for again."""
    if id(cls) in frame.memory.new_classes:
        return frame.break_graph("builtin_unsupported", f"dir() of class {cls.__qualname__}, which the traced program made")
    found = type.__dir__(cls)

    def unchanged(now: type) -> bool:
        """dir() gives the same names"""
        return type.__dir__(now) == found

    frame.guard("PREDICATE", class_value(frame, cls).source, unchanged)
    return sorted(found)


def call_after_graph(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Logs a call for after the graph, where it runs as plain Python."""
    frame.mutations.call(frame.services.call_disabled(function), args, kwargs)


def print_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The text is made now and printed after the graph, unless a tensor is shown."""
    file = kwargs.get("file", NONE)
    stdout = file.is_constant() and file.constant() is None
    write = find(type(sys.stdout) if stdout else file.python_type(), "write")[0]
    if isinstance(write, types.FunctionType) and not (stdout and is_installed(write.__code__)) or write is NO_ATTRIBUTE:
        return frame.break_graph("print", "a file of the program's own")
    texts = [deferred_shown(frame, a) for a in args]
    options = {k: v for k, v in kwargs.items()}
    call_after_graph(frame, print, texts, options)
    return NONE


def deferred_shown(frame: Frame, value: Value) -> Value:
    """What to print after the graph: the text as it is now, a size, or a copy of a tensor without gradients."""
    if isinstance(value, (SymNumber, DeferredFloat, DeferredValue)):
        return value
    if isinstance(value, AbstractTensor) and not value.example.requires_grad:
        return frame.graph.call_method(frame, "clone", (value,))
    return shown(frame, value, str)


def object_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ObjectValue(object)


def cast(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[1]


def of_new_type(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """UserId(value), where UserId = typing.NewType("UserId", int): the value"""
    if len(args) != 1 or kwargs:
        return frame.break_graph("call_unknown", "typing.NewType with other arguments than a value")
    return args[0]


calls(
    {
        isinstance: isinstance_,
        issubclass: issubclass_,
        getattr: getattr_,
        hasattr: hasattr_,
        setattr: setattr_,
        delattr: delattr_,
        type: type_,
        id: id_,
        callable: callable_,
        hash: hash_,
        vars: vars_,
        dir: dir_,
        super: super_,
        print: print_,
        object: object_class,
        object.__new__: new_object,
        typing.cast: cast,
        typing.NewType.__call__: of_new_type,
        type.__call__: lambda frame, args, kwargs: type_call(frame, args[0], list(args[1:]), kwargs),
        **{c.__new__: new_object for c in (tuple, list, dict, set, frozenset)},
    }
)
