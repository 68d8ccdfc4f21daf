"""What fakes remember: how to make a fake of a spec, and what an op gave when it was last called with the same specs and numbers.

Equal specs become one object, so that a call is known by the identities of its specs. What has no symbols is kept for the process,
the rest with the table of its symbols: a rule may decide on sizes, and the table records that once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from .._torch import OpOverload
from ..spec import TensorSpec
from ..symbols.expr import Expr
from ..symbols.symint import IntNode
from ..symbols.table import SymbolTable

if TYPE_CHECKING:
    from .mode import FakeMode

Key = tuple[object, ...]

MOST = 1 << 15  # calls or specs; beyond it everything is forgotten


class Template:
    """A spec and how torch is told to make a tensor of it."""

    __slots__ = ("spec", "options", "is_symbolic")

    def __init__(self, spec: TensorSpec, table: SymbolTable | None) -> None:
        self.spec = spec
        self.is_symbolic = spec.is_symbolic
        sizes: tuple[Any, ...] = spec.sizes
        strides: tuple[Any, ...] = spec.strides
        offset: Any = spec.offset
        if table is not None and self.is_symbolic:
            carry = table.to_symint
            sizes, strides, offset = tuple(map(carry, sizes)), tuple(map(carry, strides)), carry(offset)
        self.options: dict[str, Any] = {"size": sizes, "strides": strides, "dtype": spec.dtype, "device": spec.device}
        if offset.__class__ is not int or offset != 0:  # each argument takes C++ a third of a microsecond
            self.options["storage_offset"] = offset
        self.options["_extra_dispatch_keys"] = _torch.COMPOSITE_KEYS  # to reach fake/composites
        if self.is_symbolic:
            self.options["storage_size"] = 0  # otherwise C++ computes a symbolic number of bytes for each tensor


class Memo:
    """Templates by spec and results by call. `results` holds (result, what keeps the identities in the key alive)."""

    def __init__(self, table: SymbolTable | None = None) -> None:
        self.table = table
        self.templates: dict[Key, Template] = {}
        self.results: dict[Key, tuple[Any, object]] = {}

    def template(self, spec: TensorSpec) -> Template:
        """The one template of all equal specs."""
        key = (spec.dtype, spec.device, spec.sizes, spec.strides, spec.offset)
        found = STATIC.templates.get(key)
        if found is None and self is not STATIC:
            found = self.templates.get(key)
        if found is None:
            found = Template(spec, self.table)
            owner = self if found.is_symbolic else STATIC
            if len(owner.templates) >= MOST:
                owner.forget()
            owner.templates[key] = found
        return found

    def keep(self, key: Key, result: Any, arguments: Iterable[object]) -> None:
        """Remember the result of a call; the arguments hold the specs whose identities are in the key."""
        owner = self if any(map(_has_symbols, arguments)) else STATIC
        if len(owner.results) >= MOST:
            owner.forget()
        owner.results[key] = result, arguments

    def forget(self) -> None:
        """Everything."""
        self.templates.clear()
        self.results.clear()


STATIC = Memo()


def memo_of(table: SymbolTable | None) -> Memo:
    """The memo that goes with a table of symbols, or the one of all calls without any."""
    if table is None:
        return STATIC
    if table.fakes is None:
        table.fakes = Memo(table)
    return table.fakes


def _has_symbols(value: Any) -> bool:
    if value.__class__ is TensorSpec:
        return value.is_symbolic
    return any(map(_has_symbols, value)) if value.__class__ in (list, tuple) else isinstance(value, Expr)


def call_key(func: OpOverload, mode: FakeMode, fake_class: type, args: Iterable[Any], kwargs: dict[str, Any]) -> Key | None:
    """What the result of this call depends on; None when that is more than specs and numbers.

    The class goes before each value, as 1, 1.0 and True are equal; a spec is a bare number, its identity.
    """
    key: list[object] = [id(func), torch.get_default_dtype()]
    add = key.append
    for a in args:
        cls = a.__class__
        if cls is fake_class and a.mode is mode:
            add(id(a.spec))
        elif cls in NUMBERS:
            add(cls)
            add(a)
        elif not _add_other(key, mode, fake_class, a, cls):
            return None
    if kwargs:
        for name, a in kwargs.items():
            add(name)
            if not _add(key, mode, fake_class, a):
                return None
    return tuple(key)


def _add(key: list[object], mode: FakeMode, fake_class: type, a: Any) -> bool:
    cls = a.__class__
    if cls is fake_class and a.mode is mode:
        key.append(id(a.spec))
        return True
    if cls in NUMBERS:
        key.append(cls)
        key.append(a)
        return True
    return _add_other(key, mode, fake_class, a, cls)


def _add_other(key: list[object], mode: FakeMode, fake_class: type, a: Any, cls: type) -> bool:
    if cls is list or cls is tuple:
        key.append(list)
        for item in a:
            if item.__class__ is not int:
                break
        else:
            key.append(tuple(a))
            return True
        for item in a:
            if not _add(key, mode, fake_class, item):
                return False
        key.append(END)
        return True
    if cls is torch.SymInt:
        node = a.node
        if node.__class__ is not IntNode or mode.table is None:
            return False
        key.append(Expr)
        key.append(node.value)
        return True
    if cls is torch.device:
        key.append(cls)
        key.append(a)
        return a.index is not None or a.type == "cpu"  # "cuda" alone is the current one
    return False


END = object()
NUMBERS = frozenset((int, float, bool, str, type(None), torch.dtype, torch.memory_format, torch.layout, complex))
