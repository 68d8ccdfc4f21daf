"""WRAP: Python type -> how an object of it becomes a Value and which guards that takes.

An object is wrapped once per capture: `frame.memory.memo` finds the value again by identity, whatever the path. The rows stand with the
values that they make, in the storeys above.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..._torch.operators import CustomOpDef, HigherOrderOperator, OpOverload
from ..._torch.torch_compile import patched_by_torch_compile
from ...atoms import ATOM_TYPES
from ...sources import (
    IN_OBJECTS,
    Attr,
    ClassAttr,
    Const,
    DefaultArg,
    DictValueAt,
    Global,
    ItemAhead,
    KwDefaultArg,
    Local,
    PlainPart,
    Source,
)
from .binding import ATOMS, CONTAINERS
from .constant import ConstantValue
from .registry import Registry
from .value import Frame, Value

Wrapper = Callable[[Frame, Any, Source], Value]
AnyWrapper = TypeVar("AnyWrapper", bound=Callable[..., Any])

WRAP: Registry[type, Wrapper] = Registry("WRAP")
"""Type -> row for its instances, not for those of classes derived from it."""
DERIVED: Registry[Any, Wrapper] = Registry("DERIVED")
"""Base or bases, one of IN_ORDER -> row for instances of classes derived from it that have no row in WRAP."""
NAMED: Registry[str, Wrapper] = Registry("NAMED")
"""Name of a type, alone or with its module -> row, for types of modules that may not be imported."""
CHANGED: Registry[type, Callable[[Frame, Any, Source], Value | None]] = Registry("CHANGED")
"""Type of a constant -> its value if it is another one in each call; None when it stays a constant."""

IN_ORDER: tuple[Any, ...] = (
    enum.Enum,
    type,
    torch.nn.Module,
    torch.Tensor,
    types.ModuleType,
    OpOverload,
    HigherOrderOperator,
    CustomOpDef,
    CONTAINERS,
    ATOMS,
    BaseException,
    torch.autocast,
)
"""The first base of a class that stands here says what its instances are; those of other classes are known by DERIVED[object]."""


def wrap(frame: Frame, obj: Any, source: Any) -> Value:
    """The value of an existing object; installs its guards."""
    kind = type(obj)
    refuse_unhashable(frame, kind)
    if kind in ATOM_TYPES:
        return wrap_atom(frame, obj, source)
    inside = function_inside(obj, source) if kind is types.FunctionType else None
    if inside is not None:
        return frame.wrap(*inside)
    memo = frame.memory.memo
    found = memo.get(id(obj))
    if found is not None:
        return found
    row = WRAP.get(kind) or row_of_other(kind)
    value = row(frame, obj, source)
    memo[id(obj)] = value
    frame.memory.keep.append(obj)
    return value


def row_of_other(kind: type) -> Wrapper:
    """The row for a type that has none of its own in WRAP."""
    for base in IN_ORDER:
        if issubclass(kind, base):
            return DERIVED[base]
    return NAMED.get(kind.__name__) or NAMED.get(f"{kind.__module__}.{kind.__name__}") or DERIVED[object]


def refuse_unhashable(frame: Frame, cls: type) -> None:
    """Classes are keys of tables."""
    if type(cls).__hash__ is None:
        frame.break_graph("unhashable_value", f"the class {cls.__qualname__}, which its metaclass makes unhashable")


def wrap_atom(frame: Frame, obj: Any, source: Any) -> Value:
    """Constants, guarded by value. They are rebuilt as constants, so they keep no source, but know where they were found."""
    found = source is not None and type(source) is not Const
    if found:
        if obj is None:
            frame.guard("IS_NONE", source)
        else:
            row = CHANGED.get(type(obj)) if isinstance(source, CHANGING) else None
            changed = None if row is None else row(frame, obj, source)
            if changed is not None:
                return changed
            frame.guard("CONSTANT", source, obj)
    return ConstantValue(obj, place=source if found else None)


CHANGING = (*IN_OBJECTS, Local, Global, ClassAttr, ItemAhead, PlainPart, DefaultArg, KwDefaultArg)
"""Where each call may find another number or text: a counter, a size, a name."""


PER_CALL_SOURCES = (*IN_OBJECTS, Local, DictValueAt, ItemAhead, DefaultArg, KwDefaultArg)
"""Where a program may put a function that it makes for each call."""


def may_differ_per_call(source: Any) -> bool:
    """Whether a function there may be another one in each call; not in classes, globals and functions that are known by identity."""
    return isinstance(source, PER_CALL_SOURCES) and type(source.base) is not Const


COMPILED_OF = "_torchdynamo_inline"
"""Where what torch.compile made of a function keeps the function; wrappers around it have the attribute, too, but another id."""


def function_inside(obj: types.FunctionType, source: Any) -> tuple[Any, Any] | None:
    """(the function that one of torch.compile's wrappers stands for, where it is), None for other functions. The wrapper has no value of
    its own, which would lead to another object than the wrapper."""
    patched = patched_by_torch_compile(obj)
    if patched is not None:
        return patched, Attr(source, "__wrapped__")
    if source is not None and COMPILED_OF in obj.__dict__ and obj.__dict__.get("_torchdynamo_wrapper_id") == id(obj):
        return obj.__dict__[COMPILED_OF], Attr(source, COMPILED_OF)
    return None


def guard_type(frame: Frame, obj: Any, source: Any) -> None:
    """Another object there may take its place if it is of the same type."""
    frame.guard("TYPE", source, type(obj))


# --- adding rows -----------------------------------------------------------------------------------------------------------


def wraps(*kinds: type) -> Callable[[AnyWrapper], AnyWrapper]:
    """Adds the function to WRAP."""
    return _adder(WRAP, kinds)


def wraps_derived(*bases: Any) -> Callable[[AnyWrapper], AnyWrapper]:
    """Adds it to DERIVED."""
    return _adder(DERIVED, bases)


def wraps_named(*names: str) -> Callable[[AnyWrapper], AnyWrapper]:
    """Adds it to NAMED."""
    return _adder(NAMED, names)


def changes_in(*kinds: type) -> Callable[[AnyWrapper], AnyWrapper]:
    """Adds it to CHANGED."""
    return _adder(CHANGED, kinds)


def _adder(table: Registry[Any, Any], keys: tuple[Any, ...]) -> Callable[[AnyWrapper], AnyWrapper]:
    def add(row: AnyWrapper) -> AnyWrapper:
        for key in keys:
            table[key] = row
        return row

    return add
