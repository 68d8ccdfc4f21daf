"""OPCODES: opcode name -> handler(frame, instruction); unsupported opcodes have a reason (a string) instead.

A handler returns None, RETURNED (frame.result is set) or SUSPENDED (a generator yielded).
"""

from __future__ import annotations

from . import arithmetic, attributes, blocks, calls, containers, imports, intrinsics, jumps, loops, names, stack
from .table import OPCODES, RETURNED, SUSPENDED

__all__ = ["OPCODES", "RETURNED", "SUSPENDED"]

_FAMILIES = (arithmetic, attributes, blocks, calls, containers, imports, intrinsics, jumps, loops, names, stack)
