"""PURE: the functions of C that may be called while tracing on constants: what they give follows from their arguments alone, and they do
nothing else. A function that is not listed breaks the graph and runs at its time: it may read a clock, the environment, a file.
"""

from __future__ import annotations

import binascii
import cmath
import datetime
import math
import operator
import struct
import types
from typing import Any

__all__ = ["is_pure"]

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
        *(int.from_bytes, float.fromhex, float.__getformat__, bytes.fromhex),
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
