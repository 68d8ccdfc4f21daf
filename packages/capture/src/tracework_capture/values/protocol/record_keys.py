"""Instances of frozen dataclasses as keys: two of a class are equal where the fields are that the class compares and hashes."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Iterable
from typing import Any

from ...atoms import is_atom
from ...guards.classes import NO_ATTRIBUTE, defines, lookup_class

SHAPE = ("co_code", "co_names", "co_consts", "co_varnames")
_known: weakref.WeakKeyDictionary[type, tuple[Any, tuple[str, ...] | None]] = weakref.WeakKeyDictionary()
"""Class -> (its __hash__ and __eq__, names of its fields or None)."""


class RecordKey:
    """Stands for a key, by the class and what `hash_key` is of its fields."""

    __slots__ = ("cls", "names", "parts")

    def __init__(self, cls: type, names: tuple[str, ...], parts: tuple[Any, ...]) -> None:
        self.cls, self.names, self.parts = cls, names, parts

    def __eq__(self, other: object) -> bool:
        if type(other) is not RecordKey:
            return NotImplemented  # a UserKey refuses keys of other kinds with its hash
        return other.cls is self.cls and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.parts)  # as the instances do

    def real(self) -> Any:
        """An instance that equals the key."""
        found: Any = object.__new__(self.cls)
        for name, part in zip(self.names, self.parts):
            object.__setattr__(found, name, part.real() if type(part) is RecordKey else part)
        return found


def record_fields(cls: type) -> tuple[str, ...] | None:
    """The names of the fields that keys of this class are compared by; None for classes whose equality is their own, or of which instances
    change."""
    functions = tuple(lookup_class(cls, name)[0] for name in ("__hash__", "__eq__"))
    if not all(type(function) is types.FunctionType for function in functions):
        return None
    found = _known.get(cls)
    if found is None or found[0] != functions:
        found = _known[cls] = functions, _fields(cls, *functions)
    return found[1]


def _fields(cls: type, hasher: types.FunctionType, comparer: types.FunctionType) -> tuple[str, ...] | None:
    parameters = type.__getattribute__(cls, "__dict__").get("__dataclass_params__")
    if parameters is None or not parameters.frozen or not parameters.eq or defines(cls, "__getattr__"):
        return None
    if lookup_class(cls, "__getattribute__")[0] is not object.__getattribute__:
        return None
    fields = [f for f in dataclasses.fields(cls) if f.compare]
    names = [f.name for f in fields]
    if any(f.compare is not (f.compare if f.hash is None else f.hash) for f in dataclasses.fields(cls)):
        return None
    like = dataclasses.make_dataclass("Like", names, frozen=True)  # what dataclass makes for these fields
    for own, made in ((hasher, like.__hash__), (comparer, like.__eq__)):
        if any(getattr(own.__code__, part) != getattr(made.__code__, part) for part in SHAPE):
            return None
    return tuple(names) if all(_is_plain(lookup_class(cls, name)[0]) for name in names) else None


def _is_plain(attribute: Any) -> bool:
    """Whether the class has no code that reading the field would run."""
    return attribute is NO_ATTRIBUTE or type(attribute) is types.MemberDescriptorType or not hasattr(type(attribute), "__get__")


def record_key(key: Any) -> RecordKey | None:
    """The RecordKey of an existing object; None for others, and where a field is no constant and no such object."""
    cls = type(key)
    names = record_fields(cls) if "__dataclass_params__" in type.__getattribute__(cls, "__dict__") else None
    if names is None:
        return None
    try:
        parts = [getattr(key, name) for name in names]
    except AttributeError:  # one that was never set
        return None
    return key_of_parts(cls, names, [record_key(part) or part for part in parts])


def key_of_parts(cls: type, names: tuple[str, ...], parts: Iterable[Any]) -> RecordKey | None:
    """The RecordKey of these; None where equality of one of them is another."""
    return RecordKey(cls, names, tuple(parts)) if all(map(_is_part, parts)) else None


def _is_part(part: Any) -> bool:
    if type(part) is tuple:
        return all(map(_is_part, part))
    return type(part) is RecordKey or is_atom(part) and part == part
