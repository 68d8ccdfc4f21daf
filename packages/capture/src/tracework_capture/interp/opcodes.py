"""OPCODES: opcode name -> handler(frame, instruction), filled by all families; unsupported opcodes have a reason (a string) instead.

A handler returns None, RETURNED (frame.result is set) or SUSPENDED (a generator yielded).
"""

from __future__ import annotations

from .handlers import arithmetic, attributes, blocks, calls, containers, imports, intrinsics, jumps, loops, names, stack
from .handlers.table import OPCODES, find_handler

__all__ = ["OPCODES", "find_handler"]

_FAMILIES = (arithmetic, attributes, blocks, calls, containers, imports, intrinsics, jumps, loops, names, stack)
