"""guard_filter_fn: what a filter is shown, and torch.compiler's six ready-made filters.

A filter gets a list of FilterEntry and gives one bool each; False drops the guard. Every filter here is unsafe in the sense that the
compiled code is used although something that it was made for may have changed. Entries have the attributes of torch.compile's, so
filters written for it, torch's own included, work unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ControlMisuse
from ..signals import let_through
from ..sources import Ambient, Const, FrameGlobals, Global, ancestors, root
from .access import Scope, fetch
from .guard import Guard

TYPES: dict[str, str] = {
    "TENSOR": "TENSOR_MATCH",
    "STATE": "GLOBAL_STATE",
    "CONDITIONS": "SHAPE_ENV",
    "TYPE": "TYPE_MATCH",
    "IDENTITY": "ID_MATCH",
    "NOT_IDENTITY": "NOT_ID_MATCH",
    "IS_NONE": "CONSTANT_MATCH",
    "NOT_NONE": "NOT_NONE_MATCH",
    "CONSTANT": "CONSTANT_MATCH",
    "LENGTH": "SEQUENCE_LENGTH",
    "DICT_KEYS": "DICT_KEYS_MATCH",
    "DICT_HAS": "DICT_CONTAINS",
    "DICT_LACKS": "DICT_CONTAINS",
    "TRUTH": "BOOL_MATCH",
    "HAS_ATTR": "HASATTR",
    "LACKS_ATTR": "HASATTR",
    "CODE": "FUNCTION_MATCH",
    "SET_MEMBERS": "SET_CONTAINS",
    "TEXT": "EQUALS_MATCH",
    "DATA": "EQUALS_MATCH",
    "DATA_PTR": "DATA_PTR_MATCH",
    "DIES_UNSEEN": "LAMBDA_GUARD",
    "ORDER": "CONSTANT_MATCH",
    "NOT_SUBCLASS": "TYPE_MATCH",
    "CONSTANT_RANGE": "RANGE_ITERATOR_MATCH",
    "CLASSES": "CLASS_MATCH",
    "PREDICATE": "LAMBDA_GUARD",
    "RELATION": "LAMBDA_GUARD",
    "SAME": "DUPLICATE_INPUT",
    "DISTINCT": "OBJECT_ALIASING",
}
"""Our kinds of guards -> the names that filters written for torch.compile compare with."""

_BUILT_IN = ("torch.nn.", "torch.ao.")


@dataclass(frozen=True)
class GuardOrigin:
    """Where a guard looks: inside of an nn.Module, and one of torch's own?"""

    in_module: bool
    in_builtin_module: bool

    def is_unspecialized_nn_module(self) -> bool:
        """The guard looks at a module or at something in one."""
        return self.in_module

    def is_unspecialized_builtin_nn_module(self) -> bool:
        """The innermost module that the guard looks into is of a class of torch.nn or torch.ao."""
        return self.in_builtin_module


@dataclass(frozen=True)
class OriginalGuard:
    """The guard behind an entry; `source` as torch.compile's filters ask it, `guard` ours (None for the conditions on sizes)."""

    source: GuardOrigin
    guard: Guard | None


@dataclass(frozen=True)
class FilterEntry:
    """One guard as a filter sees it: what it looks at, the value there now, and its kind under torch.compile's name."""

    name: str
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OriginalGuard


def filter_guards(
    choose: Callable[[Sequence[FilterEntry]], Iterable[bool]], guards: Sequence[Guard], scope: Scope
) -> tuple[list[Guard], bool]:
    """(guards that are kept, whether the conditions on sizes are). Raises ControlMisuse for an answer of the wrong length."""
    conditions = FilterEntry("", False, None, TYPES["CONDITIONS"], (), False, OriginalGuard(GuardOrigin(False, False), None))
    entries = [entry_of(guard, scope) for guard in guards] + [conditions]
    kept = [bool(answer) for answer in choose(entries)]
    if len(kept) != len(entries):
        raise ControlMisuse(
            f"guard_filter_fn gave {len(kept)} answers for {len(entries)} guards. Give one bool for each entry, in order, as in "
            "[entry.guard_type != 'TYPE_MATCH' for entry in entries]."
        )
    return [guard for guard, keep in zip(guards, kept) if keep], kept[-1]


def entry_of(guard: Guard, scope: Scope) -> FilterEntry:
    """The entry of one guard."""
    value, modules, known = None, [], True
    for source in ancestors(guard.source):
        try:
            value = fetch(source, scope)
        except Exception as error:  # what cannot be read now is shown without a value
            let_through(error)
            value, known = None, False
            break
        if isinstance(value, torch.nn.Module):
            modules.append(value)
    start = root(guard.source)
    builtin = bool(modules) and type(modules[-1]).__module__.startswith(_BUILT_IN)
    return FilterEntry(
        str(guard.source),
        known and not isinstance(start, Ambient),
        value,
        TYPES[guard.kind],
        (),
        isinstance(start, (Global, FrameGlobals, Const)),
        OriginalGuard(GuardOrigin(bool(modules), builtin), guard),
    )


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[FilterEntry]) -> list[bool]:
    """Drops guards on modules of torch.nn itself (nn.Linear and the like)."""
    return [not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[FilterEntry]) -> list[bool]:
    """Drops guards on all modules and what is in them."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Sequence[FilterEntry], keep_parameters: bool = False) -> list[bool]:
    """Keeps only guards on tensors; of parameters only with keep_parameters."""
    return [
        entry.guard_type == TYPES["TENSOR"] and (keep_parameters or not isinstance(entry.value, torch.nn.Parameter))
        for entry in guard_entries
    ]


def skip_guard_on_globals_unsafe(guard_entries: Sequence[FilterEntry]) -> list[bool]:
    """Drops guards on global variables and on what other modules hold."""
    return [not entry.is_global for entry in guard_entries]


def skip_all_guards_unsafe(guard_entries: Sequence[FilterEntry]) -> list[bool]:
    """Drops everything: the first compiled version runs for all calls."""
    return [False for _ in guard_entries]


def keep_portable_guards_unsafe(guard_entries: Sequence[FilterEntry]) -> list[bool]:
    """Keeps what also makes sense outside of Python: tensors that are not global, sizes, and torch's state."""
    return [
        entry.guard_type in (TYPES["STATE"], TYPES["CONDITIONS"]) or (entry.guard_type == TYPES["TENSOR"] and not entry.is_global)
        for entry in guard_entries
    ]
