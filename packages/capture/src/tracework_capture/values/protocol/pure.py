"""PURE: the functions of C that may be called while tracing on constants: what they give follows from their arguments alone, and they do
nothing else. A function that is not listed breaks the graph and runs at its time: it may read a clock, the environment, a file.
"""

from __future__ import annotations

import binascii
import cmath
import datetime
import functools
import math
import operator
import re
import struct
import types
from collections.abc import Collection
from typing import Any

MODULES = (math, cmath, operator, struct, binascii)
"""Modules of which all functions of C are pure but those that EXCEPT names."""

EXCEPT = frozenset(
    {
        operator.call,  # of what it is given
        *(operator.setitem, operator.delitem, struct.pack_into),  # these write to what they are given, which would be a copy
        *(operator.iadd, operator.iand, operator.iconcat, operator.ifloordiv, operator.ilshift, operator.imatmul, operator.imod),
        *(operator.imul, operator.ior, operator.ipow, operator.irshift, operator.isub, operator.itruediv, operator.ixor),
    }
)

PURE = frozenset(
    {
        *(f for module in MODULES for f in vars(module).values() if isinstance(f, types.BuiltinFunctionType) and f not in EXCEPT),
        *(int.from_bytes, bytes.fromhex),
        *(getattr(float, name) for name in ("fromhex", "__getformat__")),
        *(getattr(datetime.date, name) for name in ("fromisoformat", "fromordinal", "fromisocalendar")),
        *(getattr(datetime.datetime, name) for name in ("fromisoformat", "fromordinal", "fromisocalendar", "combine")),
        datetime.time.fromisoformat,
    }
)
"""Functions of modules, and methods of classes that look at nothing but their arguments. Those of datetime that are not here ask for the time,
the time zone or the locale."""


def is_pure(function: Any) -> bool:
    """Whether a C function may be called while tracing when all of its arguments are constants."""
    return isinstance(function, types.BuiltinFunctionType) and function in PURE


def reads_locale(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether what a function of C gives of constants may depend on the locale: format code n, and patterns of re.LOCALE."""
    while type(function) is functools.partial:  # of a method, which comes last
        function = function.args[-1]
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if function is format:
        owner, name, args = args[0], "__format__", args[1:]
    if type(owner) is re.Pattern:
        return bool(owner.flags & re.LOCALE)
    if name == "__format__":
        return bool(args) and str(args[0]).endswith("n")
    return name in ("format", "format_map") and type(owner) is str and _MAY_HAVE_CODE_N.search(owner) is not None


_MAY_HAVE_CODE_N = re.compile(r":[^}]*[n{]")
"""In a template: a specification with an n, or with a field of its own."""


def may_differ_elsewhere(function: Any, args: tuple[Any, ...], found: Any) -> bool:
    """Whether what a function of C gave of constants follows from where objects lie or from how texts are hashed, which is another thing
    in each process: hashes and identities, the order of a set, and texts with an address."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    given = args if owner is None or isinstance(owner, types.ModuleType) else (owner, *args)
    if name in ("hash", "__hash__"):
        return any(map(is_hashed_anew, given))
    return name == "id" or any(map(_has_any_order, given)) or type(found) is str and " at 0x" in found


def is_hashed_anew(constant: Any) -> bool:
    """Whether each process has another hash for it: all but numbers do, or may."""
    if type(constant) in (tuple, frozenset):
        return any(map(is_hashed_anew, constant))
    return type(constant) not in (bool, int, float, complex) or constant != constant


def ordered_anew(members: Collection[Any]) -> bool:
    """Whether each process may iterate over a set of these in another order."""
    return len(members) > 1 and any(map(is_hashed_anew, members))


def _has_any_order(constant: Any) -> bool:
    kind = type(constant)
    if kind in (set, frozenset):
        return ordered_anew(constant) or any(map(_has_any_order, constant))
    parts = constant.values() if kind is dict else constant if kind in (tuple, list) else ()
    return any(map(_has_any_order, parts))
