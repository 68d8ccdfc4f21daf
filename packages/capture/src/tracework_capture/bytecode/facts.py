"""What differs between CPython 3.11, 3.12 and 3.13 and is needed by Python code: how instruction arguments are packed."""

from __future__ import annotations

import dis
import sys

VERSION = sys.version_info[:2]
SUPPORTED_VERSIONS = ((3, 11), (3, 12), (3, 13))

HAS_CONST = frozenset(dis.hasconst)
HAS_NAME = frozenset(dis.hasname)
HAS_LOCAL = frozenset(dis.haslocal)
HAS_FREE = frozenset(dis.hasfree)
HAS_JUMP = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)

NAME_SHIFTS: dict[str, int] = {"LOAD_GLOBAL": 1}
"""Opcode -> how far its argument is shifted to get the name's index; the low bits are flags."""
if VERSION >= (3, 12):
    NAME_SHIFTS.update(LOAD_ATTR=1, LOAD_SUPER_ATTR=2)

LOAD_CELL = "LOAD_FAST" if VERSION >= (3, 13) else "LOAD_CLOSURE"
"""What pushes a cell itself."""

COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4, (3, 13): 5}.get(VERSION, 5)
PAIR_LOCALS = frozenset({"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"})
BINARY_OPERATORS = tuple(symbol for _, symbol in dis._nb_ops)  # type: ignore[attr-defined]  # argument of BINARY_OP -> "+", ..., "+=", ...
