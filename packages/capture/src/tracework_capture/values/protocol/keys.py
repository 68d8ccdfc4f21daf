"""Keys of mappings and members of sets: what stands for one in the tables of values, and whether a lookup would run code of the user."""

from __future__ import annotations

import enum
import types
import typing
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from ... import _C
from ...atoms import is_atom
from ...guards.kinds import REFERENCES, weak_key
from ...sources import Const
from .kinds import AbstractTensor, AbstractTuple
from .make import make
from .record_keys import RecordKey, record_key
from .value import Frame, Value

LOWEST_ADDRESS = 2**16
"""No object lies below (Linux's vm.mmap_min_addr), so smaller ints are no id() of one."""


def plain_key(key: Any) -> bool:
    """True when a key of an existing dict can be used as it is."""
    return is_atom(key) or (isinstance(key, tuple) and all(plain_key(k) for k in key))


class IdentityKey:
    """Stands for a dict key that is compared by identity (a class, a function, a module, a plain object)."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __eq__(self, other: object) -> bool:
        return type(other) is IdentityKey and other.obj is self.obj

    def __hash__(self) -> int:
        return id(self.obj)


class MethodKey:
    """Stands for a bound method as a dict key: two are equal that have one function, or one method of C code
    by its name, of one object (which may be a Value)."""

    __slots__ = ("function", "owner")

    def __init__(self, owner: Any, function: Any) -> None:
        self.owner, self.function = owner, function

    def __eq__(self, other: object) -> bool:
        return type(other) is MethodKey and other.owner is self.owner and other.function == self.function

    def __hash__(self) -> int:
        return hash((id(self.owner), self.function))

    def real(self) -> Any:
        """A method that equals the key."""
        if type(self.function) is str:
            return getattr(self.owner, self.function)
        return types.MethodType(behind(self.function), self.owner)


class ReferenceKey:
    """Stands for a weak reference as a key: those to one object, which compares by identity, are equal. It holds a Value, and an existing
    object weakly, as a table that the program made may outlive the capture."""

    __slots__ = ("number", "reference", "value")

    def __init__(self, referent: Any) -> None:
        self.number = id(referent)
        self.value = referent if isinstance(referent, Value) else None
        self.reference = weakref.ref(referent) if self.value is None else None

    def __eq__(self, other: object) -> bool:
        return type(other) is ReferenceKey and other.number == self.number

    def __hash__(self) -> int:
        return hash(("reference", self.number))


class NumberKey:
    """Stands for the id() of an object as a key, where that is not known while tracing (values.objects.identity_numbers.IdentityNumber); `among` sees
    to it that no other key of a table is the same number."""

    __slots__ = ("number",)

    def __init__(self, number: Any) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return type(other) is NumberKey and other.number.of is self.number.of

    def __hash__(self) -> int:
        return id(self.number.of)


def among(frame: Frame, hashed: Any, keys: Iterable[Any], is_existing: bool) -> Any:
    """What a table with these keys has the key `hashed` under. Where there are numbers that are known, it is compared as one of them."""
    asked = type(hashed) is NumberKey
    if not asked and not (type(hashed) is int and hashed >= LOWEST_ADDRESS):
        return hashed
    if asked and is_existing:
        return hashed.number.known(frame)
    for key in keys:
        if asked and type(key) is NumberKey:
            hashed.number.equals(frame, key.number)
        elif type(key) is NumberKey and key.number.known(frame) == hashed:
            return key
        elif asked and type(key) is int and key >= LOWEST_ADDRESS and hashed.number.known(frame) == key:
            return key
    return hashed


def refers_to_identity(reference: weakref.ref[Any]) -> bool:
    """Whether an existing weak reference compares as the object itself does: by identity."""
    target = reference()
    return target is None or type(target).__hash__ in IDENTITY_HASH


def by_identity(hashed: Any) -> Any:
    """The key that `entries` has for a `hash_key`: what is compared by identity, classes and functions, say, goes by it."""
    if type(hashed) is tuple:
        return tuple(by_identity(part) for part in hashed)
    if type(hashed) is MethodKey:
        return MethodKey(hashed.owner, by_identity(hashed.function))
    if type(hashed) is types.BuiltinFunctionType:
        return key_of_existing(hashed)
    return IdentityKey(hashed) if isinstance(hashed, _BY_IDENTITY) or _is_unequal_to_others(hashed) else hashed


def _is_unequal_to_others(hashed: Any) -> bool:
    """Whether it is an object of a C type that is equal to itself alone, as a TypeVar or a property."""
    identity: Any = object.__hash__
    return type(hashed).__hash__ is identity and not isinstance(hashed, Value) and not plain_key(hashed)


def hashed_here(frame: Frame, key: Value) -> Any:
    """The same where it is compared with objects that exist already, or orders them: which tensors and owners of methods are in it is
    guarded."""
    guard_tensors(frame, key)
    return typed_key(frame, key)


def typed_key(frame: Frame, key: Value) -> Any:
    """The same without the tensors: different inputs stay different objects, whichever they are."""
    return _with_owners(frame, by_identity(key.hash_key(frame)))


def _with_owners(frame: Frame, hashed: Any) -> Any:
    """The same with the objects that own its methods, where they exist already."""
    if type(hashed) is tuple:
        return tuple(_with_owners(frame, part) for part in hashed)
    if type(hashed) is not MethodKey or not isinstance(hashed.owner, Value) or hashed.owner.source is None:
        return hashed
    try:
        obj = hashed.owner.real()
    except LookupError:
        obj = getattr(hashed.owner, "obj", None)
    if obj is None:
        return frame.break_graph("unhashable_value", f"a method of {hashed.owner.describe()}")
    frame.guard("IDENTITY", hashed.owner.source, obj)
    return MethodKey(obj, hashed.function)


def guard_tensors(frame: Frame, key: Value) -> None:
    """Guards the identity of tensors in a key."""
    if isinstance(key, AbstractTuple):
        for part in key.all_items(frame):
            guard_tensors(frame, part)
    elif is_input_tensor(key):
        frame.guard("IDENTITY", key.source, key.obj)


def is_input_tensor(key: Value) -> bool:
    """Whether it is a tensor that was there before."""
    return isinstance(key, AbstractTensor) and key.obj is not None


def behind(hashed: Any) -> Any:
    """The real key of an entry of an existing mapping."""
    if type(hashed) is tuple:
        return tuple(behind(part) for part in hashed)
    if type(hashed) is ReferenceKey:
        return hashed.reference
    if type(hashed) in (RecordKey, MethodKey):
        return hashed.real()
    return hashed.obj if isinstance(hashed, IdentityKey) else hashed


def is_new(hashed: Any) -> bool:
    """Whether a key is, or holds, an object that the traced program made: no mapping of before has it."""
    if type(hashed) is tuple:
        return any(map(is_new, hashed))
    if type(hashed) is MethodKey:
        return isinstance(hashed.owner, Value) or is_new(hashed.function)
    if type(hashed) is ReferenceKey:
        return hashed.value is not None
    return isinstance(hashed, IdentityKey) and isinstance(hashed.obj, Value)


_BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType)
IDENTITY_HASH: tuple[Any, ...] = (object.__hash__, torch.nn.Module.__hash__, torch.Tensor.__hash__)


def simple_key(key: Any) -> bool:
    """Whether a lookup among other keys is known without running an __eq__ or __hash__ of the user."""
    if type(key) is tuple:
        return all(simple_key(part) for part in key)
    return (
        plain_key(key)
        or record_key(key) is not None
        or type(key).__hash__ in IDENTITY_HASH
        or isinstance(key, (*_NATIVE_KEYS, enum.Enum))
        or (type(key) in REFERENCES and refers_to_identity(key))
    )


_NATIVE_KEYS = (types.MethodType, types.BuiltinFunctionType, types.GenericAlias, types.UnionType, type(typing.Any))


def key_of_existing(key: Any) -> Any:
    """What `hash_key` of the wrapped key will be."""
    if type(key) is tuple:
        return tuple(key_of_existing(part) for part in key)
    if type(key) is types.MethodType:
        return MethodKey(key.__self__, key_of_existing(key.__func__))
    if type(key) is types.BuiltinFunctionType and key.__self__ is not None and not isinstance(key.__self__, types.ModuleType):
        return MethodKey(key.__self__, key.__name__)
    if type(key) in REFERENCES and (target := key()) is not None:
        return ReferenceKey(target)
    return key if plain_key(key) else record_key(key) or IdentityKey(key)


def held_key(frame: Frame, key: Any) -> Any:
    """What a guard on the keys of a dict holds of one. Of objects with an equality of their own others than these may be equal, too, and
    guards do not ask them."""
    if type(key) in REFERENCES and simple_key(key):
        return key  # itself: there are no weak references to it
    if simple_key(key) and not has_record(key):
        return weak_key(key)
    try:
        return _C.WeakKey(key)
    except TypeError:
        return frame.break_graph(
            "unhashable_value", f"a {type(key).__name__}, of which there are no weak references, among the keys"
        )


def has_record(key: Any) -> bool:
    """Whether the key is an object that compares by its fields, or a tuple with one."""
    return any(map(has_record, key)) if type(key) is tuple else record_key(key) is not None


def wrap_key(frame: Frame, key: Any) -> Value:
    """The Value of a key of an existing dict."""
    if plain_key(key):
        return make.result(frame, key)
    return frame.wrap(key, Const(key if type(key) in REFERENCES else weak_key(key)))
