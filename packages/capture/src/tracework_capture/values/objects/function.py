"""Python functions, bound methods, and the cells they close over: what a call needs to be inlined, and how they are rebuilt."""

from __future__ import annotations

import dis
import functools
import gc
import itertools
import sys
import types
from collections.abc import Iterable
from typing import Any, NoReturn, cast

from ...code_origin import is_of_torch
from ...guards.classes import lookup_class
from ...polyfills import is_fixed
from ...sources import Attr, CellContents, Const, DefaultArg, FunctionGlobals, Item, KwDefaultArg, Source
from ..plain.mapping import dict_of
from ..plain.sequence import TupleValue
from ..protocol.calls import Handler, Policy, row_of_function
from ..protocol.finalizers import drop_reference
from ..protocol.keys import MethodKey
from ..protocol.kinds import AbstractCell, AbstractFunction, AbstractInstance, AbstractTuple
from ..protocol.make import make
from ..protocol.value import EXISTING, NEW, Emitter, Frame, Value
from .exception import raise_no_attribute


class CellValue(AbstractCell):
    """A closure cell. `contents` is None while unbound; existing cells are read on first use."""

    cls = types.CellType
    two_phase = True
    filled_last = True  # a function, or the class that it is a method of, is closed over by itself

    def __init__(self, cell: types.CellType | None = None, contents: Source | None = None, source: Source | None = None) -> None:
        super().__init__(source)
        self.cell, self.contents_source = cell, contents
        self.mutability = EXISTING if cell is not None else NEW
        self._contents: Value | None = None
        self._read = cell is None

    def held(self) -> Iterable[Any]:
        return (self._contents,)

    def get(self, frame: Frame) -> Value | None:
        """The contents, None when the cell is empty."""
        if not self._read:
            self._read = True
            try:
                contents = cast(types.CellType, self.cell).cell_contents
            except ValueError:
                frame.guard("PREDICATE", self.source, is_empty)
                return None
            self._contents = frame.wrap(contents, self.contents_source)
        return self._contents

    def set(self, frame: Frame, value: Value | None) -> None:
        """Store (None empties the cell); existing cells are logged for replay."""
        if self.mutability == EXISTING:
            drop_reference(frame, self.cell, self.source, True)
        self._read = True
        self._contents = value
        if self.mutability == EXISTING:
            frame.mutations.keep.append(self)
            frame.log_effect(("cell", id(self.cell)), lambda emit: self._write(emit))

    def drops(self, obj: Any) -> bool:
        """Whether an existing cell holds the object and the traced program put something else there."""
        held = gc.get_referents(self.cell) if self._read and self.cell is not None else ()
        return any(one is obj for one in held) and (self._contents is None or getattr(self._contents, "obj", None) is not obj)

    def _write(self, emit: Emitter) -> None:
        cell = emit.load(self)
        if self._contents is None:
            emit.line(f"del {cell}.cell_contents")
        else:
            emit.line(f"{cell}.cell_contents = {emit.load(self._contents)}")

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(types.CellType, 'CellType')}()"

    def fill(self, emit: Emitter, name: str) -> None:
        if self.cell is None and self._contents is not None:
            emit.line(f"{name}.cell_contents = {emit.load(self._contents)}")

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "cell_contents":
            contents = self.get(frame)
            if contents is None:
                frame.raise_new(ValueError, "Cell is empty")
            return contents
        return super().getattr(frame, name)


def is_empty(cell: types.CellType) -> bool:
    """the cell is empty"""
    return type(cell) is types.CellType and cell == types.CellType()


class FunctionValue(AbstractFunction):
    """An existing Python function. With `by_identity` its object is guarded, so most of its parts are known; else its code is.

    What reloads a file while it runs puts new code into the functions that exist: the code of those that are called is guarded, too.
    """

    cls = types.FunctionType

    def __init__(self, function: types.FunctionType, source: Source | None, by_identity: bool = True) -> None:
        super().__init__(source if source is not None else Const(function, getattr(function, "__qualname__", "function")))
        self.function = function
        self.code = function.__code__
        self.globals = function.__globals__
        self.by_identity = by_identity
        self.base = Const(function, function.__qualname__) if by_identity else self.source
        self._cells: tuple[CellValue, ...] | None = None

    name = property(lambda self: self.function.__qualname__)

    def real(self) -> types.FunctionType:
        return self.function

    def same_object(self, other: Value) -> bool | None:
        if isinstance(other, FunctionValue) and self is not other:
            if self.mutability is NEW or other.mutability is NEW:
                return False
            return self.function is other.function
        return super().same_object(other)

    def hash_key(self, frame: Frame) -> Any:
        if not self.by_identity:
            frame.guard("IDENTITY", self.source, self.function)
        return self.function

    as_graph_arg = hash_key

    def defaults(self, frame: Frame) -> list[Value]:
        """Positional defaults, as Values."""
        found = self.function.__defaults__ or ()
        return [self._default(frame, obj, DefaultArg(self.base, i)) for i, obj in enumerate(found)]

    def default(self, frame: Frame, index: int) -> Value:
        """One positional default."""
        return self._default(frame, cast(tuple[Any, ...], self.function.__defaults__)[index], DefaultArg(self.base, index))

    def _default(self, frame: Frame, obj: object, source: Source) -> Value:
        """The value of a default; some nobody changes."""
        return frame.wrap(obj, Const(obj, "default") if is_fixed(self.globals) else source)

    def default_count(self) -> int:
        """How many positional parameters have defaults."""
        return len(self.function.__defaults__ or ())

    def kwdefault(self, frame: Frame, name: str) -> Value | None:
        """Default of a keyword-only parameter, or None."""
        found = self.function.__kwdefaults__ or {}
        return self._default(frame, found[name], KwDefaultArg(self.base, name)) if name in found else None

    def closure(self, frame: Frame) -> tuple[CellValue, ...]:
        """The cells of the free variables, in co_freevars order; one CellValue per cell and capture."""
        if self._cells is None:
            cells = self.function.__closure__ or ()
            places = Attr(self.base, "__closure__")
            self._cells = tuple(
                frame.existing_cell(cell, CellContents(self.base, i), Item(places, i)) for i, cell in enumerate(cells)
            )
        return self._cells

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__get__":
            return _Binder(self)
        if not _is_of_functions(name):
            given: Value | None = self._table(frame).find(frame, frame.constant(name))
            return self._no_attribute(frame, name) if given is None else given
        found = getattr(self.function, name)
        if type(found) is types.MethodWrapperType:
            frame.break_graph("attribute_unknown", f"{name} of function {self.name}, which is another object each time")
        return frame.wrap(found, Attr(self.base, name))

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        self._check_written(frame, name)
        self._table(frame).setitem(frame, frame.constant(name), value)

    def delattr(self, frame: Frame, name: str) -> None:
        self._check_written(frame, name)
        self.getattr(frame, name)
        self._table(frame).delitem(frame, frame.constant(name))

    def _check_written(self, frame: Frame, name: str) -> None:
        """What inspect and functools ask of the function itself, as __signature__, is written by plain Python."""
        if _is_of_functions(name) or name.startswith("__"):
            frame.break_graph("side_effect_unknown", f"{name} of a function")

    def _table(self, frame: Frame) -> Any:
        """The dict of the attributes that the program gave it."""
        return frame.wrap(self.function.__dict__, Attr(self.base, "__dict__"))

    def _no_attribute(self, frame: Frame, name: str) -> NoReturn:
        raise_no_attribute(frame, self, name, f"'function' object has no attribute '{name}'")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not is_of_torch(self.code) and not is_fixed(self.globals):
            frame.guard("CODE", self.base, self.code)
        if not self.by_identity and self.code.co_names:
            frame.guard("IDENTITY", FunctionGlobals(self.base), self.globals)
        return frame.inline(self, args, kwargs)


def _is_of_functions(name: str) -> bool:
    """Whether it is an attribute of all functions. The type is not asked: what `type` has comes before what functions have."""
    return any(name in kind.__dict__ for kind in types.FunctionType.__mro__)


class NewFunctionValue(FunctionValue):
    """A function made by MAKE_FUNCTION in the traced program."""

    mutability = NEW

    def __init__(
        self,
        code: types.CodeType,
        globals_: dict[str, Any],
        defaults: list[Value],
        kwdefaults: dict[str, Value],
        closure: tuple[CellValue, ...],
    ) -> None:
        Value.__init__(self, None)
        self.code, self.globals = code, globals_
        self._defaults, self._kwdefaults, self._closure = defaults, kwdefaults, closure
        self.attributes: dict[str, Value] = {}
        self.annotations: AbstractTuple | None = None
        self.defaults_read: Value | None = None
        self.closure_read: Value | None = None

    name = property(lambda self: self.code.co_qualname)

    def held(self) -> Iterable[Any]:
        return *self._closure, *self._defaults, *self._kwdefaults.values(), *self.attributes.values()

    def real(self) -> Any:
        raise LookupError(self.name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.inline(self, args, kwargs)

    def hash_key(self, frame: Frame) -> Any:
        return self

    def describe(self) -> str:
        return f"function {self.code.co_qualname}"

    def defaults(self, frame: Frame) -> list[Value]:
        return self._defaults

    def default(self, frame: Frame, index: int) -> Value:
        return self._defaults[index]

    def default_count(self) -> int:
        return len(self._defaults)

    def kwdefault(self, frame: Frame, name: str) -> Value | None:
        return self._kwdefaults.get(name)

    def has_more(self) -> bool:
        """Whether it has defaults of keyword-only parameters, annotations, or attributes that the program gave it."""
        return bool(self._kwdefaults or self.annotations is not None or self.attributes)

    def signature_parts(self) -> tuple[list[Value], list[Value], list[Value]]:
        """The defaults of positional and of keyword-only parameters, and names and annotations interleaved."""
        return self._defaults, list(self._kwdefaults.values()), [] if self.annotations is None else self.annotations.items

    def kwdefault_names(self) -> list[str]:
        """The names of keyword-only parameters that have defaults."""
        return list(self._kwdefaults)

    def closure(self, frame: Frame) -> tuple[CellValue, ...]:
        return self._closure

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name == "__get__":
            return _Binder(self)
        plain = {
            "__name__": self.code.co_name,
            "__qualname__": self.code.co_qualname,
            "__code__": self.code,
            "__module__": self.globals.get("__name__"),
        }
        if name in plain:
            return frame.constant(plain[name])
        if name == "__doc__":
            return frame.constant(types.FunctionType(self.code, {}, closure=_empty_cells(self.code)).__doc__)
        if name == "__defaults__":
            if self.defaults_read is None:
                self.defaults_read = TupleValue(list(self._defaults)) if self._defaults else frame.constant(None)
            return self.defaults_read
        if name == "__annotations__":
            flat = [] if self.annotations is None else self.annotations.items
            self.annotations = None
            self.attributes[name] = dict_of(frame, list(zip(flat[::2], flat[1::2])))
            return self.attributes[name]
        if name == "__closure__":
            if self.closure_read is None:
                self.closure_read = TupleValue(list(self._closure)) if self._closure else frame.constant(None)
            return self.closure_read
        if name == "__class__":
            return frame.wrap(types.FunctionType, Const(types.FunctionType, "FunctionType"))
        if name == "__type_params__" and _is_of_functions(name):  # where there are some they were set
            return frame.constant(())
        if _is_of_functions(name):
            frame.break_graph("attribute_unknown", f"{name} of a function made in the traced program")
        self._no_attribute(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if name in ("__code__", "__defaults__", "__kwdefaults__"):
            frame.break_graph("side_effect_unknown", f"{name} of a function")
        self.attributes[name] = value

    def delattr(self, frame: Frame, name: str) -> None:
        if name not in self.attributes:
            frame.break_graph("side_effect_unknown", f"deleting {name} of a function")
        del self.attributes[name]

    def as_graph_arg(self, frame: Frame) -> Any:
        frame.break_graph("call_unknown", f"function {self.name} as an argument of a graph operation")

    two_phase = True

    def reload(self, emit: Emitter) -> str:
        function_type = emit.const(types.FunctionType, "FunctionType")
        defaults = "(" + "".join(emit.load(v) + ", " for v in self._defaults) + ")" if self._defaults else "None"
        closure = "(" + "".join(emit.load(c) + ", " for c in self._closure) + ")" if self._closure else "None"
        code, globals_ = emit.const(self.code, "code"), emit.const(self.globals, "globals")
        return f"{function_type}({code}, {globals_}, {self.code.co_name!r}, {defaults}, {closure})"

    def fill(self, emit: Emitter, name: str) -> None:
        if self._kwdefaults:
            items = ", ".join(f"{key!r}: {emit.load(value)}" for key, value in self._kwdefaults.items())
            emit.line(f"{name}.__kwdefaults__ = {{{items}}}")
        if self.annotations is not None:
            flat = [emit.load(item) for item in self.annotations.items]
            items = ", ".join(f"{key}: {value}" for key, value in zip(flat[::2], flat[1::2]))
            emit.line(f"{name}.__annotations__ = {{{items}}}")
        for key, value in self.attributes.items():
            emit.line(f"{name}.{key} = {emit.load(value)}")


def _empty_cells(code: types.CodeType) -> tuple[types.CellType, ...]:
    return tuple(types.CellType() for _ in code.co_freevars)


class BoundMethodValue(Value):
    """A function bound to its first argument."""

    cls = types.MethodType

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function, self.owner = function, owner

    def held(self) -> Iterable[Any]:
        return self.function, self.owner

    def real(self) -> Any:
        return types.MethodType(self.function.real(), self.owner.real())

    def hash_key(self, frame: Frame) -> Any:
        return MethodKey(self.owner, self.function.hash_key(frame))

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if isinstance(other, BoundMethodValue) and op in ("==", "!="):
            same = self.function is other.function and self.owner is other.owner
            return frame.constant(same if op == "==" else not same)
        return None

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__func__":
            return self.function
        if name == "__self__":
            return self.owner
        if name == "__class__":
            return frame.wrap(types.MethodType, Const(types.MethodType))
        if name == "__get__" and name in types.MethodType.__dict__:  # from 3.13 on; before, the function's is found
            return _Binder(self)
        return self.function.getattr(frame, name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(frame, [self.owner, *args], kwargs)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(types.MethodType, 'MethodType')}({emit.load(self.function)}, {emit.load(self.owner)})"


class _Binder(Value):
    """`function.__get__`, waiting for its owner."""

    cls = types.MethodWrapperType

    def __init__(self, function: Value) -> None:
        super().__init__(None)
        self.function = function

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        owner = args[0]
        if owner.is_constant() and owner.constant() is None:
            return self.function
        if isinstance(self.function, BoundMethodValue):  # it stays bound to what it is bound to
            return self.function
        return BoundMethodValue(self.function, owner)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.load(self.function)}.__get__"


class _DoNotFit(Exception):
    """The arguments of a call are none of the function's."""


def bind_arguments(frame: Frame, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """Values of the parameters of `function`, by name, as CPython binds them; raises TypeError in the traced program."""
    try:
        return _bound(frame, function, args, kwargs)
    except _DoNotFit:
        return frame.raise_new(TypeError, _what_does_not_fit(frame, function, len(args), kwargs))


def _bound(frame: Frame, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    code = function.code
    count, positional_only = code.co_argcount, code.co_posonlyargcount
    names = code.co_varnames
    bound: dict[str, Value] = dict(zip(names[:count], args))
    position = count + code.co_kwonlyargcount
    if code.co_flags & 4:
        bound[names[position]] = TupleValue(list(args[count:]))
        position += 1
    elif len(args) > count:
        raise _DoNotFit
    extra = _bind_keywords(bound, kwargs, frozenset(names[positional_only : count + code.co_kwonlyargcount]))
    if code.co_flags & 8:
        bound[names[position]] = dict_of(frame, [(frame.constant(k), v) for k, v in extra.items()])
    elif extra:
        raise _DoNotFit
    _bind_defaults(frame, function, bound)
    return bound


def _bind_keywords(bound: dict[str, Value], kwargs: dict[str, Value], names: frozenset[str]) -> dict[str, Value]:
    extra = {}
    for name, value in kwargs.items():
        if name not in names:
            extra[name] = value
        elif name in bound:
            raise _DoNotFit
        else:
            bound[name] = value
    return extra


def _bind_defaults(frame: Frame, function: FunctionValue, bound: dict[str, Value]) -> None:
    code = function.code
    count = code.co_argcount
    first_default = count - function.default_count()  # below 0 where a program gave it the defaults of another function
    if any(name not in bound for name in code.co_varnames[: max(first_default, 0)]):
        raise _DoNotFit
    for index in range(max(first_default, 0), count):
        name = code.co_varnames[index]
        if name not in bound:
            bound[name] = function.default(frame, index - first_default)
    for name in code.co_varnames[count : count + code.co_kwonlyargcount]:
        if name not in bound:
            default = function.kwdefault(frame, name)
            if default is None:
                raise _DoNotFit
            bound[name] = default


def _nothing() -> None:
    """The body of a function that only binds arguments."""


def _what_does_not_fit(frame: Frame, function: FunctionValue, count: int, kwargs: dict[str, Value]) -> str:
    """What CPython says when it binds these arguments, asked of a function with the same parameters that does nothing."""
    code, body = function.code, _nothing.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
    only = body.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_varnames=parameters,
        co_nlocals=len(parameters),
        co_flags=body.co_flags | code.co_flags & 12,
    )
    binds = types.FunctionType(only, {}, code.co_name, (None,) * function.default_count())
    binds.__qualname__ = function.name
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    binds.__kwdefaults__ = {name: None for name in named if function.kwdefault(frame, name) is not None}
    try:
        binds(*[None] * count, **dict.fromkeys(kwargs))
    except TypeError as error:
        return str(error)
    raise RuntimeError(f"{function.name}() takes arguments that tracing could not bind")


# --- functions that have rows, by their own code ------------------------------------------------------------------------


def call_own_code(frame: Frame, function: Any, args: Iterable[Value], kwargs: dict[str, Value]) -> Value:
    """A call of a Python function by its own code, whatever CALLS has for it."""
    return FunctionValue(function, Const(function, function.__qualname__)).call(frame, list(args), kwargs)


def handler_of_function(fn: types.FunctionType) -> Handler | None:
    """The handler(frame, args, kwargs) of a Python function that has a row. What models a method of a class knows what the methods do
    that it calls on its instance: where one of them is overridden, the code of the method is traced."""
    row = row_of_function(fn)
    if row is None:
        return None
    if type(row.key) is types.CodeType:
        return functools.partial(_with_function, row.handler, fn)
    if row.policy is not Policy.MODELLED or not methods_called(fn):  # a polyfill calls them itself
        return row.handler
    return functools.partial(_unless_overridden, row.handler, fn)


def _with_function(handler: Handler, fn: types.FunctionType, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return handler(frame, fn, args, kwargs)


def _unless_overridden(
    handler: Handler, fn: types.FunctionType, frame: Frame, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    base = class_of_method(fn)
    if base is not None and args and is_overridden(frame, args[0], base, methods_called(fn)):
        return call_own_code(frame, fn, args, kwargs)
    return handler(frame, args, kwargs)


@functools.cache
def class_of_method(fn: types.FunctionType) -> type | None:
    """The class that has a function as a method of its instances; None for other functions."""
    found: Any = sys.modules.get(fn.__module__)
    for name in fn.__qualname__.split(".")[:-1]:
        found = getattr(found, name, None)
    return found if isinstance(found, type) and vars(found).get(fn.__name__) is fn else None


@functools.cache
def methods_called(fn: types.FunctionType) -> frozenset[str]:
    """Names of the methods that a method of a class calls on its instance, in its own code or in that of those."""
    cls = class_of_method(fn)
    found: set[str] = set()
    waiting = [] if cls is None else [fn]
    while waiting:
        method = waiting.pop()
        this = method.__code__.co_varnames[0]
        for load, use in itertools.pairwise(dis.get_instructions(method)):
            on_instance = load.opname.startswith("LOAD_FAST") and (load.argval == this or load.argval[-1:] == (this,))
            if not on_instance or use.opname not in ("LOAD_ATTR", "LOAD_METHOD") or use.argval in found:
                continue
            static = getattr(cls, use.argval, None)
            if isinstance(static, (types.FunctionType, types.MethodDescriptorType)):
                found.add(use.argval)
            if isinstance(static, types.FunctionType):
                waiting.append(static)
    return frozenset(found)


def is_overridden(frame: Frame, instance: Value, base: type, names: Iterable[str]) -> bool:
    """Whether an instance has other methods than a base of its class, by its class or in its own dict. Guarded. What the base's library
    derives from it does not count."""
    cls = instance.python_type()
    if base not in cls.__mro__:
        return False
    library = base.__module__.rpartition(".")[0] or base.__module__
    for name in sorted(names):
        owner = lookup_class(cls, name)[1]
        if owner is not None and owner not in base.__mro__ and not owner.__module__.startswith(library):
            return True
        if isinstance(instance, AbstractInstance) and instance.field(frame, name) is not None:
            return True
    return False


make.provide(bound_method=BoundMethodValue)
