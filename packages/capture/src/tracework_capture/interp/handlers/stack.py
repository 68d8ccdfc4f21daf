"""Stack shuffling and instructions without effect."""

from __future__ import annotations

from ...bytecode.code import Instruction
from ..frame import NULL, SymbolicFrame
from .table import opcode


@opcode("NOP", "CACHE", "RESUME", "PRECALL", "EXTENDED_ARG", "COPY_FREE_VARS")
def nothing(frame: SymbolicFrame, instruction: Instruction) -> None:
    """No effect on the traced state."""


@opcode("POP_TOP")
def pop_top(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Drop the top."""
    frame.stack.pop()


@opcode("PUSH_NULL")
def push_null(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Push NULL."""
    frame.stack.append(NULL)


@opcode("COPY")
def copy(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Push the i-th entry from the top again."""
    frame.stack.append(frame.stack[-instruction.arg])


@opcode("SWAP")
def swap(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Exchange the top with the i-th entry."""
    stack, depth = frame.stack, instruction.arg
    stack[-1], stack[-depth] = stack[-depth], stack[-1]
