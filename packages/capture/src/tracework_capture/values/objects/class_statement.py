"""Class statements inside of traced code: the body runs on values; the class is made while tracing, and again where it leaves.

What the trace asks the class (its order of bases, what it defines) a template answers: a real class of real functions, which never
run, since each stands for the function that the body made, as other objects stand for what else it left.
"""

from __future__ import annotations

import abc
import builtins
import collections
import types
from typing import TYPE_CHECKING, Any, cast

import torch

from ...errors import NotPlain
from ...guards.classes import HEAP_TYPE, defines
from ..plain.iterators import PartialBuiltin
from ..plain.mapping import DictValue
from ..plain.sequence import NONE
from ..protocol.calls import calls
from ..protocol.constant import fold_plain, plain
from ..protocol.value import NEW, Value
from .class_value import ClassValue
from .function import CellValue, FunctionValue, NewFunctionValue

if TYPE_CHECKING:
    from ...interp.frame import SymbolicFrame
    from ..protocol.calls import Handler
    from ..protocol.value import Emitter, Frame

METACLASSES = {type, abc.ABCMeta, type(torch.autograd.Function)}
_NOTICED = frozenset({"__del__", "__set_name__", "__mro_entries__"})
"""Names by which a body would take part in when things happen."""
PRIVATE_BASES = {abc.ABC, torch.autograd.Function}
"""Classes of libraries of which programs do not list the subclasses."""
_READ_BY_TYPE = frozenset({"__slots__", "__module__", "__qualname__", "__doc__"})


class Unfit(Exception):
    """Why a class cannot be made while tracing."""


class NewClassValue(ClassValue):
    """A class that the traced program makes; each call of the program makes another."""

    mutability = NEW
    two_phase = True
    is_known_elsewhere = True

    def __init__(self, template: type, bases: list[Value], namespace: dict[str, Value], neutral_base: type | None = None) -> None:
        super().__init__(template)
        self.source = None
        self.bases, self.namespace = bases, namespace
        self.neutral_base = neutral_base

    def end(self) -> None:
        """Takes the template, which the collector may be late for, out of what existing classes know of those derived from them."""
        if self.neutral_base is not None:
            self.cls.__bases__ = (self.neutral_base,)

    def getitem(self, frame: Frame, key: Value) -> Value:
        return frame.break_graph("class_building", f"{self.describe()}[...]")

    def as_plain(self) -> Any:
        """What is computed from the template would go on holding it where the class is meant."""
        raise NotPlain(self)

    def reload(self, emit: Emitter) -> str:
        bases = "".join(f"{emit.load(b)}, " for b in self.bases)
        items = ", ".join(f"{name!r}: {emit.load(value)}" for name, value in self.namespace.items())
        return f"{emit.const(type(self.cls))}({self.cls.__name__!r}, ({bases}), {{{items}}})"

    def fill(self, emit: Emitter, name: str) -> None:
        """Nothing: methods find the class in their cell, which is filled once it is there."""

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if name.startswith("__"):
            return super().setattr(frame, name, value)
        try:
            setattr(self.cls, name, template_of(frame, value))
        except (Unfit, NotPlain):
            return super().setattr(frame, name, value)
        self.namespace[name] = value
        return None

    def as_graph_arg(self, frame: Frame) -> Any:
        return frame.break_graph("class_building", f"{self.describe()} as an argument of a graph operation")


class NamedTupleClassValue(NewClassValue):
    """collections.namedtuple(...) of plain values."""

    is_known_elsewhere = False

    def __init__(self, cls: type, args: list[Value], kwargs: dict[str, Value]) -> None:
        super().__init__(cls, [], {})
        self.args, self.kwargs = args, kwargs

    def reload(self, emit: Emitter) -> str:
        parts = [emit.load(a) for a in self.args] + [f"{k}={emit.load(v)}" for k, v in self.kwargs.items()]
        return f"{emit.const(collections.namedtuple)}({', '.join(parts)})"

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        return ClassValue.setattr(self, frame, name, value)


def namedtuple_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """collections.namedtuple(typename, field_names, ...)"""
    kwargs = {"module": frame.constant(frame.globals.get("__name__"))} | kwargs  # namedtuple looks at the frame that calls it
    try:
        cls = fold_plain(frame, collections.namedtuple, *map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
    except NotPlain as why:
        return frame.break_graph("class_building", f"namedtuple: {why}")
    made = NamedTupleClassValue(cls, args, kwargs)
    know(frame, cls, made)
    return made


class DescriptorValue(Value):
    """staticmethod, classmethod or property of functions that the traced program made."""

    mutability = NEW

    def __init__(self, kind: type, parts: list[Value]) -> None:
        super().__init__(None)
        self.kind, self.parts = kind, parts

    def python_type(self) -> type:
        return self.kind

    def getattr(self, frame: Frame, name: str) -> Value:
        if self.kind is property and name in ("getter", "setter", "deleter"):
            place = ("getter", "setter", "deleter").index(name)

            def exchanged(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
                parts = [*self.parts, *[NONE] * 3][:3]
                parts[place] = args[0]
                return DescriptorValue(property, parts)

            return PartialBuiltin(types.MethodType, exchanged)
        return frame.break_graph("class_building", f"{name} of a {self.kind.__name__}")

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(self.kind)}({', '.join(emit.load(p) for p in self.parts)})"


def descriptor_row(kind: type) -> Handler:
    """kind(function, ...)"""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs or not args or not all(isinstance(a, FunctionValue) or a is NONE for a in args):
            return frame.break_graph("class_building", f"{kind.__name__} of something else than functions")
        return DescriptorValue(kind, list(args))

    return row


def build_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """__build_class__(body, name, *bases)"""
    body, name, *bases = args
    try:
        if kwargs or not isinstance(body, NewFunctionValue):
            raise Unfit("keywords of a class statement")
        classes = known_bases(bases)
        namespace, cell = frame.services.run_class_body(cast("SymbolicFrame", frame), body)
        if namespace.pop("__classcell__", cell) is not cell:
            raise Unfit("its __classcell__ is no cell of the class statement")
        made = class_of_statement(frame, plain(name), bases, classes, namespace)
    except (Unfit, NotPlain) as why:
        return frame.break_graph("class_building", f"{plain(name)}: {why}")
    if isinstance(cell, CellValue):
        cell.set(frame, made)
    return made


def class_of_parts(frame: Frame, args: list[Value]) -> Value:
    """type(name, bases, namespace)"""
    try:
        bases, entries = args[1].unpack(frame), cast(DictValue, args[2])
        namespace = {plain(key): value for key, value in entries.all_items(frame)}
        namespace.setdefault("__module__", frame.constant(frame.globals.get("__name__")))
        return class_of_statement(frame, plain(args[0]), bases, known_bases(bases), namespace)
    except (Unfit, NotPlain) as why:
        return frame.break_graph("class_building", f"type(name, bases, namespace): {why}")


def known_bases(bases: list[Value]) -> tuple[type, ...]:
    """The bases as classes. Raises Unfit where making a class of them runs code, or is not known to run none."""
    classes = tuple(map(base_of, bases))
    meta = type(classes[0]) if classes else type
    if meta not in METACLASSES or any(type(c) not in (meta, type) for c in classes):
        raise Unfit(f"its metaclass {meta.__name__}")
    for base in classes:
        if any("__init_subclass__" in c.__dict__ for c in base.__mro__[:-1]):
            raise Unfit(f"{base.__name__} has an __init_subclass__")
    return classes


def class_of_statement(
    frame: Frame, name: str, bases: list[Value], classes: tuple[type, ...], namespace: dict[str, Value]
) -> NewClassValue:
    """The class. Raises Unfit."""
    meta = type(classes[0]) if classes else type
    template_parts = {k: plain(v) if k in _READ_BY_TYPE else template_of(frame, v) for k, v in namespace.items()}
    unfit = _NOTICED & template_parts.keys()
    if unfit:
        raise Unfit(f"it has {min(unfit)}")
    try:
        template = meta(name, classes, template_parts)
    except (TypeError, ValueError) as error:
        raise Unfit(str(error)) from error
    known = [b for b in classes if b.__flags__ & HEAP_TYPE and b not in PRIVATE_BASES and id(b) not in frame.memory.new_classes]
    made = NewClassValue(template, list(bases), namespace, neutral_base(known, template, classes) if known else None)
    know(frame, template, made)
    return made


_NEUTRAL_BASES: dict[type, type] = {}  # a class of C, or abc.ABC -> one derived from it that nobody sees


def neutral_base(known: list[type], template: type, classes: tuple[type, ...]) -> type:
    """The class that takes the place of a template's bases when the trace is over. Raises Unfit where their instances differ too much."""
    base: Any = template
    while base.__flags__ & HEAP_TYPE and base is not abc.ABC:
        base = base.__base__
    neutral = _NEUTRAL_BASES.get(base) or _NEUTRAL_BASES.setdefault(base, type(base)("Neutral", (base,), {}))
    try:
        template.__bases__ = (neutral,)
        template.__bases__ = classes
    except TypeError:
        raise Unfit(f"{known[0].__name__} would know of a subclass that only the trace has") from None
    return neutral


def base_of(value: Value) -> type:
    """The class that a base is."""
    if not isinstance(value, ClassValue):
        raise Unfit("a base that is no class")
    cls: type = value.cls
    return cls


def know(frame: Frame, real: Any, value: Value) -> None:
    """From now on the object stands for the value: where it is met while tracing, and where it would be a constant of the code."""
    frame.memory.memo[id(real)] = frame.memory.new_classes[id(real)] = value
    frame.memory.keep.append(real)


def template_of(frame: Frame, value: Value) -> Any:
    """What stands for a value in the template."""
    if isinstance(value, NewFunctionValue):
        return template_function(frame, value)
    if isinstance(value, DescriptorValue):
        return value.kind(*(None if p is NONE else template_of(frame, p) for p in value.parts))
    if isinstance(value, (FunctionValue, ClassValue)):
        return value.real()
    if value.is_constant():
        return value.constant()
    kind = value.python_type()
    if defines(kind, "__get__", "__set__", "__delete__", "__set_name__"):
        raise Unfit(f"a {kind.__name__} among its attributes")
    standing = object()
    know(frame, standing, value)
    return standing


def template_function(frame: Frame, value: NewFunctionValue) -> types.FunctionType:
    """A function with the parameters of the one made; registered, so that it is never run."""
    defaults = tuple(map(plain, value._defaults)) or None
    closure = tuple(types.CellType() for _ in value.code.co_freevars)
    made = types.FunctionType(value.code, value.globals, value.code.co_name, defaults, closure)
    made.__kwdefaults__ = {k: plain(v) for k, v in value._kwdefaults.items()} or None
    for key, attribute in value.attributes.items():
        setattr(made, key, plain(attribute))
    know(frame, made, value)
    return made


calls(
    {
        collections.namedtuple: namedtuple_row,
        builtins.__build_class__: build_class,
        **{kind: descriptor_row(kind) for kind in (staticmethod, classmethod, property)},
    }
)
