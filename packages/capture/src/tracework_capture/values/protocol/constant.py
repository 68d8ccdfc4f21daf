"""Constants: values that are known while tracing and cannot change (numbers, strings, dtypes, devices, enum members).

Also the two ways between plain Python objects and values: `literal` makes a value of an object that tracing itself produced,
`plain` gives the object back when a value is known entirely.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import Any, NoReturn

import numpy
import torch
from torch.torch_version import TorchVersion

from ... import _C
from ...atoms import ATOM_TYPES, NUMPY_DTYPES, NUMPY_NUMBERS, TORCH_ENUMS
from ...bytecode.assemble import at_one_place
from ...errors import NotPlain
from ...guards.kinds import COMPARE_FUNCTIONS, current_locale
from ...signals import let_through
from ...sources import IN_OBJECTS, Const, Local, PlainPart, Source
from .iteration import iterate_all
from .kinds import AbstractInstance, holds_own_instance
from .make import make
from .program_code import check_frame_hooks
from .pure import may_differ_elsewhere, reads_locale
from .registry import Registry
from .special_methods import COMPARE_SPECIAL, SPECIAL, UNARY_SPECIAL
from .value import Emitter, Frame, HeldValue, Value

KNOWN_TO_NUMPY = (numpy.generic, numpy.ndarray, torch.Tensor)
"""Classes of which NumPy's numbers take what they give themselves, or leave it to them."""

KEEPING = (*IN_OBJECTS, PlainPart)
"""Places in objects of the program, in which each call may find another object that equals the constant."""
SINGLE_TYPES = TORCH_ENUMS | frozenset(
    {
        bool,
        type(None),
        type(Ellipsis),
        type(NotImplemented),
        torch.dtype,
        torch.layout,
        torch.memory_format,
        TorchVersion,
    }
)
"""Those of which equal instances are one object."""

BINDING = ("bind", "bind_partial", "_bind", "_bound_arguments_cls")
"""Methods of signatures that put arguments to the names of parameters, and the class of what they give."""

OF_OTHER_OBJECTS = frozenset({"__call__", "__get__", "__set__", "__delete__"})
"""Methods of a constant, a property say, that are about what other objects are at that time."""

WRITING = frozenset({"tofile", "dump", "setfield", "setflags"})
"""Methods of NumPy's numbers that write."""

BINARY_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    symbol + sign: getattr(operator, f"__{prefix}{stem}__")
    for prefix, sign in (("", ""), ("i", "="))
    for symbol, stem in SPECIAL.items()
}
UNARY_FUNCTIONS: dict[str, Callable[[Any], Any]] = {symbol: getattr(operator, name) for symbol, name in UNARY_SPECIAL.items()}


EVALUATED_LAZILY: Registry[tuple[type, str], str] = Registry("EVALUATED_LAZILY")
"""(Class, attribute) -> the attribute that says that the other is there already: attributes that are expressions of the program, evaluated
when somebody asks."""

TEXT_RULES: Registry[str, Callable[[Frame, Any, list[Value], dict[str, Value]], Value | None]] = Registry("TEXT_RULES")
"""Method of str or bytes, or `%` -> what it gives, of (frame, text, args, kwargs); None for what follows from its arguments alone."""

GETTERS: Registry[types.GetSetDescriptorType, Callable[[], Value]] = Registry("GETTERS")
"""Attribute of torch.Tensor -> the function torch.Tensor.name.__get__."""


class ConstantValue(HeldValue):
    """A Python object that is known, immutable and compared by value."""

    def __init__(self, obj: Any, source: Source | None = None, place: Source | None = None) -> None:
        super().__init__(obj, source)
        self.place = place  # where it was found: a guard there says what it equals, not which object it is

    @property
    def identity_source(self) -> Source | None:
        """Where the object itself is taken from: equal ones are told apart by `is`."""
        kept = type(self.place) is Local or isinstance(self.place, KEEPING) and not self.is_single()
        return self.place if kept else None

    def is_single(self) -> bool:
        """Whether no other object equals it."""
        obj = self.obj
        return type(obj) in SINGLE_TYPES or isinstance(obj, enum.Enum) or type(obj) is int and -5 <= obj <= 256

    def __repr__(self) -> str:
        return f"ConstantValue({self.obj!r})"

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.obj

    real = constant

    def truth(self, frame: Frame) -> bool:
        return bool(fold_plain(frame, bool, self.obj))

    def hash_key(self, frame: Frame) -> Any:
        return self.obj

    def getattr(self, frame: Frame, name: str) -> Value:
        obj = self.obj
        getter = self.getter() if name == "__get__" else None
        if getter is not None:
            return getter
        if is_evaluated_lazily(obj, name):
            return frame.break_graph("attribute_unknown", f"{name} of {self.describe()} runs what the program wrote there")
        try:
            found = getattr(obj, name)
        except AttributeError as error:
            return raise_python(frame, error)
        except Exception as error:  # code of the program, which is to run when its turn comes
            let_through(error)
            return frame.break_graph("attribute_unknown", f"{name} of {self.describe()} raised {type(error).__name__}")
        if isinstance(found, (types.BuiltinMethodType, types.MethodWrapperType)):
            return make.builtin_method(self, name)
        if type(found) in (dict, list, set, tuple):  # the object itself, not another like it
            return frame.wrap(found, Const(found))
        return literal(frame, found)

    def getter(self) -> Value | None:
        """The function torch.Tensor.name.__get__, where this is that attribute of torch.Tensor; else None."""
        made = GETTERS.get(self.obj) if type(self.obj) is types.GetSetDescriptorType else None
        return None if made is None else made()

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        obj = self.obj
        if isinstance(obj, str) and name == "join" and len(args) == 1 and not kwargs:
            return fold_literal(frame, obj.join, [force_plain(frame, v) for v in iterate_all(frame, args[0], asks_length=True)])
        if isinstance(obj, torch.device) and name in ("__enter__", "__exit__"):
            return frame.break_graph("context_unknown", "a torch.device that is entered, or left, by no with statement here")
        try:
            method = getattr(obj, name)
        except AttributeError as error:
            return raise_python(frame, error)
        rule = TEXT_RULES.get(name) if type(obj) in (str, bytes) else None
        found = None if rule is None else rule(frame, obj, args, kwargs)
        if found is not None:
            return found
        if type(obj) is inspect.Signature and name in BINDING:  # what it gives may be changed, and holds any objects
            return self.getattr(frame, name).call(frame, args, kwargs)
        if name == "__iter__" and not args and not kwargs:
            return self.iterate(frame)
        if name in OF_OTHER_OBJECTS and type(obj) not in ATOM_TYPES or name in WRITING and type(obj) in NUMPY_NUMBERS:
            getter = self.getter() if name == "__get__" else None
            if getter is not None:
                return getter.call(frame, args, kwargs)
            return frame.break_graph("call_unknown", f"{self.describe()}.{name}")
        if type(obj) not in ATOM_TYPES:  # Python code may be behind it
            method = functools.partial(called_there, frame, method)
        return fold(frame, method, args, kwargs)

    def getitem(self, frame: Frame, key: Value) -> Value:
        if type(self.obj) not in ATOM_TYPES and holds_own_instance(key):
            return frame.break_graph("builtin_unsupported", f"{self.describe()}[...] that holds an instance of an own class")
        return fold(frame, operator.getitem, [self, key.as_place(frame)])

    def iterate(self, frame: Frame) -> Value:
        if type(self.obj) in (str, bytes, TorchVersion):
            return make.text_iterator(self.obj)
        fold_plain(frame, iter, self.obj)
        return frame.break_graph("iterator_unsupported", self.describe())

    def length(self, frame: Frame) -> Value:
        return fold(frame, len, [self])

    def contains(self, frame: Frame, item: Value) -> Value:
        return fold(frame, operator.contains, [self, item])

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if not other.is_constant():
            if isinstance(self.obj, str) and op == "%" and not reverse:
                return TEXT_RULES["%"](frame, self.obj, [other], {}) or fold(frame, operator.mod, [self, other])
            return self.overridden_operator(frame, op, other, reverse)
        left, right = (other.constant(), self.obj) if reverse else (self.obj, other.constant())
        return fold_literal(frame, BINARY_FUNCTIONS[op], left, right)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if type(self.obj) in NUMPY_DTYPES and issubclass(other.python_type(), type):
            return fold_literal(frame, COMPARE_FUNCTIONS[op], self.obj, other.real())  # a dtype is compared with what names it
        if not other.is_constant():
            return self.overridden_operator(frame, op, other)
        if op in ("==", "!="):
            return fold_literal(frame, COMPARE_FUNCTIONS[op], self.obj, other.constant())
        found = getattr(type(self.obj), COMPARE_SPECIAL[op])(self.obj, other.constant())
        return None if found is NotImplemented else ConstantValue(found)

    def overridden_operator(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        """self op other for an object of the program, where the method is Python code, as those of Fraction are; else None, for
        NotImplemented. NumPy's numbers make arrays of sequences, and ask objects for what they do with a number of Python."""
        kind = other.python_type()
        if type(self.obj) in NUMPY_NUMBERS and not (kind in (int, float, bool) or issubclass(kind, KNOWN_TO_NUMPY)):
            frame.break_graph("numpy_array", f"{op} of a number of NumPy and a {other.describe()}")
        prefix = "__r" if reverse else "__i" if op.endswith("=") else "__"
        name = COMPARE_SPECIAL.get(op) or f"{prefix}{SPECIAL[op.rstrip('=')]}__"
        method = getattr(type(self.obj), name, None)
        if not isinstance(method, types.FunctionType) or not isinstance(other, AbstractInstance):
            return None
        return implemented(frame.wrap(method, Const(method, name)).call(frame, [self, other], {}))

    def unary(self, frame: Frame, op: str) -> Value:
        return fold_literal(frame, UNARY_FUNCTIONS[op], self.obj)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if callable(self.obj):
            return frame.break_graph("call_unknown", self.describe())
        return frame.raise_new(TypeError, f"'{type(self.obj).__name__}' object is not callable")

    def as_graph_arg(self, frame: Frame) -> Any:
        if type(self.obj) is numpy.bool_:  # a float to arithmetic of tensors, a truth to flags
            return frame.break_graph("not_a_graph_argument", "a truth of NumPy")
        return self.obj.item() if type(self.obj) in NUMPY_NUMBERS else self.obj

    def reload(self, emit: Emitter) -> str:
        return emit.known(self.obj)


def plain(value: Value) -> Any:
    """The Python object that a value stands for.

    Raises:
        NotPlain: some part of it is a tensor, a symbol or an object that is not a constant.
    """
    if value.is_constant():
        return value.constant()
    return value.as_plain()


def force_plain(frame: Frame, value: Value) -> Any:
    """`plain`, or a graph break that names what was not known."""
    try:
        return plain(value)
    except NotPlain as missing:
        part = missing.args[0]
        if part.try_specialise(frame) or part.read_rest(frame):
            return force_plain(frame, value)
        return frame.break_graph("value_not_known", f"the value of {part.describe()} is needed while tracing")


def attribute_name(frame: Frame, value: Value) -> str:
    """The text that an attribute is set or deleted by."""
    name = force_plain(frame, value)
    if not isinstance(name, str):
        frame.raise_new(TypeError, f"attribute name must be string, not '{_C.type_name(type(name))}'")
    return name


def fold(frame: Frame, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value] | None = None) -> Value:
    """Calls a pure function now, on arguments that must be known; a Python error becomes the user's."""
    plain_args = [force_plain(frame, a) for a in args]
    plain_kwargs = {k: force_plain(frame, v) for k, v in (kwargs or {}).items()}
    return fold_literal(frame, fn, *plain_args, **plain_kwargs)


def fold_literal(frame: Frame, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Value:
    """Calls fn on plain objects and makes a value of what it gives."""
    return literal(frame, fold_plain(frame, fn, *args, **kwargs))


def fold_plain(frame: Frame, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls fn on plain objects; a Python error becomes the user's."""
    if reads_locale(fn, args):
        frame.guards.state("locale", current_locale(), frame.user_location())
    try:
        found = fn(*args, **kwargs)
    except Exception as error:
        let_through(error)
        return raise_python(frame, error)
    if may_differ_elsewhere(fn, args, found):
        frame.memory.only_now = f"what {getattr(fn, '__name__', fn)} gives is another thing in each process"
    return found


def called_there(frame: Frame, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs) from frames with the globals and at the places of the traced ones, where what it warns of is said."""
    frame.memory.only_now = f"tracing called {getattr(fn, '__qualname__', fn)}, which is code of the program"
    return placed_call(frame, fn, *args, **kwargs)


def placed_call(frame: Frame, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The same where fn runs nothing of the program."""
    check_frame_hooks(frame)
    caller: Frame | None = frame
    while caller is not None:
        code = caller.code
        moved = _calls.__code__.replace(
            co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno
        )
        place = at_one_place(moved, caller.info.position(caller.current))
        args, kwargs = (fn, args, kwargs), {}
        fn, caller = types.FunctionType(place, caller.globals), caller.parent
    return fn(*args, **kwargs)


def _calls(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def raise_python(frame: Frame, error: BaseException) -> NoReturn:
    """Raises a Python exception in the traced program, with what it carries beside its arguments; never returns."""
    raised = frame.new_exception(type(error), *error.args)
    carried = {name: getattr(error, name, None) for name in ("name", "path", "filename", "filename2")}
    carried = {name: held for name, held in carried.items() if held is not None} | vars(error)
    raised.fields.update({name: literal(frame, held) for name, held in carried.items()})
    frame.raise_user(raised)


def literal(frame: Frame, obj: Any) -> Value:
    """A value for an object that tracing itself made: nothing to guard, nothing to reload."""
    if type(obj) in ATOM_TYPES:
        return ConstantValue(obj)
    return make.result(frame, obj)


def implemented(found: Value | None) -> Value | None:
    """None instead of NotImplemented."""
    return None if found is not None and found.is_constant() and found.constant() is NotImplemented else found


def is_evaluated_lazily(obj: Any, name: str) -> bool:
    """Whether reading the attribute runs an expression of the program."""
    known = EVALUATED_LAZILY.get((type(obj), name))
    return known is not None and bool(getattr(obj, known, True))
