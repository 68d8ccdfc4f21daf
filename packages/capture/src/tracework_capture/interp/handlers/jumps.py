"""Jumps. A condition that depends on tensor data breaks the graph (interp.breaks continues on either side)."""

from __future__ import annotations

from ...bytecode.code import Instruction
from ...graph.checks import can_be_checked, take_for_granted
from ...graph.constant_data import known_tensor
from ...graph.handlers import only_raises
from ...values.number.floats import DataBool
from ...values.protocol.value import Value, is_none
from ...values.torch.tensor import TensorValue
from ..frame import SymbolicFrame
from ..select import selected
from .arithmetic import is_data_condition
from .table import opcode


def branch_truth(frame: SymbolicFrame, jump: Instruction, value: Value) -> bool:
    """The truth of what a conditional jump looks at. One that depends on data, where one of the two arms can only raise, is taken to
    be the other one, and checked when the program runs."""
    if type(value) is DataBool:
        value = value.as_tensor(frame)
    if type(value) is not TensorValue or known_tensor(value.node) is not None or not jump.opname.startswith("POP_JUMP"):
        return value.truth(frame)
    target_raises, next_raises = only_raises(frame, jump.target), only_raises(frame, jump.index + 1)
    if target_raises == next_raises or not can_be_checked(frame, value):
        return value.truth(frame)
    expected = jump.opname.endswith("TRUE") == next_raises
    take_for_granted(frame, value, expected)
    return expected


def branch(frame: SymbolicFrame, jump: Instruction, jumps_if: bool) -> None:
    """A conditional jump, which jumps when the top of the stack is true, or false; or both arms, where data decides and they are pure."""
    value = frame.stack.pop()
    if is_data_condition(value) and selected(frame, jump, value, jumps_if):
        return
    if branch_truth(frame, jump, value) is jumps_if:
        frame.position = jump.target


@opcode("JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Unconditional."""
    frame.position = instruction.target


@opcode("JUMP_BACKWARD")
def jump_backward(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The end of a loop's body."""
    frame.progress.iterate(frame)
    frame.position = instruction.target


@opcode("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE")
def pop_jump(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Jump when true, or when false."""
    branch(frame, instruction, instruction.opname.endswith("TRUE"))


@opcode("POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE")
def pop_jump_back(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The condition at the end of a while loop (3.11)."""
    frame.progress.iterate(frame)
    pop_jump(frame, instruction)


@opcode("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(frame: SymbolicFrame, instruction: Instruction) -> None:
    """`or` and `and`"""
    if frame.stack[-1].truth(frame) is (instruction.opname == "JUMP_IF_TRUE_OR_POP"):
        frame.position = instruction.target
    else:
        frame.stack.pop()


@opcode(*(f"POP_JUMP_{way}IF_{what}" for way in ("", "FORWARD_", "BACKWARD_") for what in ("NONE", "NOT_NONE")))
def pop_jump_if_none(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Jump when None, or when not None."""
    if is_none(frame.stack.pop()) is not instruction.opname.endswith("NOT_NONE"):
        frame.position = instruction.target
