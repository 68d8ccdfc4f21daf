"""What a wrapper subclass keeps beside its parts, as it was when it was met: to compare other tensors with, and to make tensors with.

The program may change such objects in place. Containers and dataclasses are compared by what is in them, exactly, and each tensor that is made
gets its own; an object without an `==` of its own is compared by identity and by what it held; one with `==` and a hash promises to stay as
it is. Tensors, whose data may change unseen, are refused.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..guards.kinds import same_constant

__all__ = ["Context", "Incomparable"]

CONSTANTS = (
    *(type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis), type(NotImplemented)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
"""Types whose objects never change and are equal to no other in a way that matters (`same_constant`)."""
EQUAL_IF_OF_A_TYPE = frozenset(CONSTANTS) - {float, complex}
SINGLE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum)
"""Types whose objects are known by identity, whatever is in them."""
CONTAINERS = (tuple, list, dict, set, frozenset, collections.OrderedDict)
LARGEST = 1000  # objects in one context


class Incomparable(Exception):
    """What is kept cannot be compared with what it was."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Contents:
    """A container or dataclass by what is in it: frozen items, or pairs of keys or names and items."""

    cls: type
    items: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class _Same:
    """One object, and what it held."""

    obj: Any
    held: Any


class Context:
    """frozen: what it is in a form that nobody changes. is_constant: whether it is its own such form. is_of: whether another one is the same."""

    def __init__(self, kept: Any) -> None:
        self.frozen = _Freezing().freeze(kept)
        self.is_constant = self.frozen is kept and type(kept) in CONSTANTS
        self.is_of = _comparison(self.frozen)

    def fresh(self) -> Any:
        """The same again, with containers of its own."""
        return self.frozen if self.is_constant else _thaw(self.frozen)


class _Freezing:
    def __init__(self) -> None:
        self.count = 0
        self.open: list[int] = []  # ids of the objects that this one is in

    def freeze(self, kept: Any) -> Any:
        kind = type(kept)
        if kind in CONSTANTS or isinstance(kept, SINGLE):
            return kept
        self.count += 1
        if isinstance(kept, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)) or self.count > LARGEST:
            raise Incomparable(f"a {kind.__name__}" if self.count <= LARGEST else f"more than {LARGEST} objects")
        if id(kept) in self.open:
            return _Same(kept, None)
        self.open.append(id(kept))
        try:
            return self._freeze(kind, kept)
        finally:
            self.open.pop()

    def _freeze(self, kind: Any, kept: Any) -> Any:
        if kind in CONTAINERS or is_namedtuple(kind):
            items = kept.items() if isinstance(kept, dict) else kept
            return _Contents(kind, tuple(map(self.freeze, items)))
        if hasattr(kind, "__dataclass_fields__") and kind.__eq__ is not object.__eq__ and not isinstance(kept, CONTAINERS):
            return _Contents(kind, tuple((name, self.freeze(value)) for name, value in attributes_of(kept).items()))
        if kind.__eq__ is not object.__eq__:
            try:
                hash(kept)
            except TypeError:
                pass
            else:
                return kept
        inside = (*(kept.items() if isinstance(kept, dict) else kept),) if isinstance(kept, CONTAINERS) else ()
        held = attributes_of(kept)
        if kind.__eq__ is not object.__eq__ and not inside and not held:
            raise Incomparable(f"a {kind.__name__}, which may change")
        return _Same(kept, self.freeze((inside, held)) if inside or held else None)


def _comparison(frozen: Any) -> Callable[[Any], bool]:
    """What compares with this, as fast as it can: a guard of each call does."""
    if type(frozen) in CONSTANTS:
        return partial(same_constant, wanted=frozen)
    fresh = _thaw(frozen)
    if not _is_plain(frozen):
        return lambda kept: _same(kept, frozen)
    cls, has_kinds = type(fresh), _by_kinds(fresh)
    return lambda kept: type(kept) is cls and has_kinds(kept) and kept == fresh


def _is_plain(frozen: Any) -> bool:
    """Whether `==` compares it exactly where all types in it are the same, and the order of what is in dicts."""
    if type(frozen) is not _Contents:
        return type(frozen) in EQUAL_IF_OF_A_TYPE
    if frozen.cls is dict and not all(type(item.items[0]) is str for item in frozen.items):
        return False
    return frozen.cls in (tuple, list, dict) and all(map(_is_plain, frozen.items))


def _by_kinds(fresh: Any) -> Callable[[Any], bool]:
    """Whether a container of the same type has objects of the same types, a dict of the same keys."""
    is_dict = type(fresh) is dict
    keys, values = (*fresh,), (*fresh.values(),) if is_dict else fresh
    kinds = tuple(map(type, values))
    places = keys if is_dict else range(len(values))
    inner = [(place, _by_kinds(value)) for place, value in zip(places, values) if type(value) in (tuple, list, dict)]

    def holds(kept: Any) -> bool:
        if is_dict and (*kept,) != keys or tuple(map(type, kept.values() if is_dict else kept)) != kinds:
            return False
        for place, check in inner:
            if not check(kept[place]):
                return False
        return True

    return holds


def is_namedtuple(kind: type) -> bool:
    """Whether it is a class of named tuples, without attributes of its own."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__dictoffset__ == 0


def attributes_of(obj: Any) -> dict[str, Any]:
    """What an object holds in its dict and its slots."""
    found = dict(getattr(obj, "__dict__", ()))
    for base in type(obj).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            at = vars(base).get(name)
            if isinstance(at, types.MemberDescriptorType) and hasattr(obj, name):
                found[name] = getattr(obj, name)
    return found


def _same(now: Any, then: Any) -> bool:
    if type(then) is _Same:
        if now is not then.obj or then.held is None:
            return now is then.obj
        inside = (*(now.items() if isinstance(now, dict) else now),) if isinstance(now, CONTAINERS) else ()
        return _same((inside, attributes_of(now)), then.held)
    if type(then) is not _Contents:
        return same_constant(now, then)
    if type(now) is not then.cls:
        return False
    if isinstance(now, CONTAINERS):
        items: Any = now.items() if isinstance(now, dict) else now
        return len(now) == len(then.items) and all(map(_same, items, then.items))
    held = attributes_of(now)
    return len(held) == len(then.items) and all(name in held and _same(held[name], value) for name, value in then.items)


def _thaw(frozen: Any) -> Any:
    if type(frozen) is _Same:
        return frozen.obj
    if type(frozen) is not _Contents:
        return frozen
    if is_namedtuple(frozen.cls):
        return tuple.__new__(frozen.cls, map(_thaw, frozen.items))
    if frozen.cls in CONTAINERS:
        return frozen.cls(map(_thaw, frozen.items))
    made: Any = object.__new__(frozen.cls)
    for name, value in frozen.items:
        object.__setattr__(made, name, _thaw(value))
    return made
