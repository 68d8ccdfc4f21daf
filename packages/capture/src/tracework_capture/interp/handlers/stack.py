"""Stack shuffling and instructions without effect."""

from ..frame import NULL
from .table import opcode


@opcode("NOP", "CACHE", "RESUME", "PRECALL", "EXTENDED_ARG", "COPY_FREE_VARS")
def nothing(frame, instruction):
    """No effect on the traced state."""


@opcode("POP_TOP")
def pop_top(frame, instruction):
    """Drop the top."""
    frame.stack.pop()


@opcode("PUSH_NULL")
def push_null(frame, instruction):
    """Push NULL."""
    frame.stack.append(NULL)


@opcode("COPY")
def copy(frame, instruction):
    """Push the i-th entry from the top again."""
    frame.stack.append(frame.stack[-instruction.arg])


@opcode("SWAP")
def swap(frame, instruction):
    """Exchange the top with the i-th entry."""
    stack, depth = frame.stack, instruction.arg
    stack[-1], stack[-depth] = stack[-depth], stack[-1]
