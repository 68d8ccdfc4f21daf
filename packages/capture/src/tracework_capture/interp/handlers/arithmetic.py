"""Operators."""

from __future__ import annotations

from ...bytecode.code import Instruction
from ...bytecode.facts import BINARY_OPERATORS, COMPARE_SHIFT, VERSION
from ...graph.constant_data import known_tensor
from ...values.number.deferred import DeferredValue
from ...values.number.floats import DataBool
from ...values.protocol.operators import binary, compare, same
from ...values.protocol.value import Value
from ...values.torch.tensor import TensorValue
from ..frame import SymbolicFrame
from .table import opcode, operators

_COMPARE = ("<", "<=", "==", "!=", ">", ">=")


@opcode("BINARY_OP")
def binary_op(frame: SymbolicFrame, instruction: Instruction) -> None:
    """left op right"""
    right = frame.stack.pop()
    left = frame.stack.pop()
    frame.stack.append(binary(frame, BINARY_OPERATORS[instruction.arg], left, right))


operators(
    {
        "UNARY_NEGATIVE": (1, lambda frame, value: value.unary(frame, "-")),
        "UNARY_POSITIVE": (1, lambda frame, value: value.unary(frame, "+")),
        "UNARY_INVERT": (1, lambda frame, value: value.unary(frame, "~")),
    }
)


@opcode("UNARY_NOT")
def logical_not(frame: SymbolicFrame, instruction: Instruction) -> None:
    """not value"""
    value = frame.stack.pop()
    if isinstance(value, DeferredValue) and not frame.instructions[instruction.index + 1].opname.startswith("POP_JUMP"):
        frame.stack.append(value.negated())
    else:
        frame.stack.append(frame.constant(not value.truth(frame)))


@opcode("TO_BOOL")
def to_bool(frame: SymbolicFrame, instruction: Instruction) -> None:
    """bool(value) before a jump (3.13)."""
    frame.stack.append(as_bool(frame, instruction, frame.stack.pop()))


def is_data_condition(value: Value) -> bool:
    """Whether its truth is data that is not known while tracing."""
    return (
        type(value) in (TensorValue, DataBool) and isinstance(value, (TensorValue, DataBool)) and known_tensor(value.node) is None
    )


def as_bool(frame: SymbolicFrame, instruction: Instruction, value: Value) -> Value:
    """bool(value); data whose truth is not known is left to the jump, which may select between its arms."""
    following = frame.instructions[instruction.index + 1]
    if following.opname.startswith("POP_JUMP") and is_data_condition(value):
        return value
    if isinstance(value, DeferredValue) and following.opname == "UNARY_NOT":
        return value
    return frame.constant(value.truth(frame))


@opcode("COMPARE_OP")
def compare_op(frame: SymbolicFrame, instruction: Instruction) -> None:
    """left op right; 3.13 may ask for a bool."""
    right = frame.stack.pop()
    left = frame.stack.pop()
    result = compare(frame, _COMPARE[instruction.arg >> COMPARE_SHIFT], left, right)
    if VERSION >= (3, 13) and instruction.arg & 16:
        result = as_bool(frame, instruction, result)
    frame.stack.append(result)


@opcode("IS_OP")
def is_op(frame: SymbolicFrame, instruction: Instruction) -> None:
    """left is right"""
    right = frame.stack.pop()
    left = frame.stack.pop()
    frame.stack.append(frame.constant(same(frame, left, right) != bool(instruction.arg)))


@opcode("CONTAINS_OP")
def contains_op(frame: SymbolicFrame, instruction: Instruction) -> None:
    """item in container"""
    container = frame.stack.pop()
    found = container.contains(frame, frame.stack.pop())
    frame.stack.append(frame.constant(not found.truth(frame)) if instruction.arg else found)
