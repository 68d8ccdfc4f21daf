"""Numbers that are drawn when the compiled code runs, before its graph. What needs one while tracing breaks the graph, and Python gets it when
the graph has run.
"""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import fx

from ...guards.kinds import COMPARE_FUNCTIONS
from ..protocol.constant import BINARY_FUNCTIONS
from ..protocol.kinds import AbstractTensor, tensor_value
from ..protocol.value import Frame, Value
from .floats import ARITHMETIC, DeferredFloat, FloatValue, is_exact_number
from .number import NumberOfNode, largest
from .symint import SAME_INT

EXACT = 2**53
"""Ints up to this one are floats, too."""


class Drawn(NumberOfNode):
    """A number that was drawn, or computed from one."""

    def specialise(self, frame: Frame) -> NoReturn:
        frame.break_graph("random_state", "the value of a random number is needed while tracing")


class DrawnValue(Drawn, DeferredFloat):
    """A float."""

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        other = other.as_float(frame) if isinstance(other, DrawnInt) else other
        return super().binary(frame, op, other, reverse)


class DrawnInt(Drawn):
    """An int; `node` gives it as a tensor. It is never farther from 0 than `most`."""

    description = "an int that is drawn"
    cls = int

    def __init__(self, node: fx.Node, most: int) -> None:
        super().__init__(None)
        self.node = node
        self.most = most

    def as_float(self, frame: Frame) -> DrawnValue:
        """float(self)"""
        return DrawnValue(tensor_value(frame.graph.call_method(frame, "to", (self.as_tensor(frame), torch.float64))).node)

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> Value:
        """What stands for it in arithmetic with these tensors. Those of fewer bits may not hold it; for powers, quotients and bits numbers
        have rules of their own."""
        if op is not None and op not in COMPARE_FUNCTIONS and op.rstrip("=") not in ("+", "-", "*", "/"):
            return self.specialise(frame)
        if all(t.example.dtype is torch.int64 for t in tensors):
            return self.as_tensor(frame)
        if all(t.example.dtype.is_floating_point for t in tensors):
            return self.as_float(frame).as_operand(frame, tensors)
        return self.specialise(frame)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        op = op.rstrip("=")
        if isinstance(other, AbstractTensor):
            return None
        if op in ARITHMETIC and is_int(other):
            most = largest(op, self.most, other.most if isinstance(other, DrawnInt) else abs(other.constant()))
            theirs = other.as_tensor(frame) if isinstance(other, DrawnInt) else other
            operands = (theirs, self.as_tensor(frame)) if reverse else (self.as_tensor(frame), theirs)
            return (
                DrawnInt(frame.graph.compute(frame, BINARY_FUNCTIONS[op], operands).node, most)
                if most <= EXACT
                else self.specialise(frame)
            )
        if isinstance(other, DrawnInt):
            other = other.as_float(frame)
        known = isinstance(other, FloatValue) or is_exact_number(other)
        return self.as_float(frame).binary(frame, op, other, reverse) if known else self.specialise(frame)

    def unary(self, frame: Frame, op: str) -> Value:
        made = frame.graph.compute(frame, torch.neg, (self.as_tensor(frame),)) if op == "-" else self.specialise(frame)
        return DrawnInt(made.node, self.most)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            return self.specialise(frame)
        return self.as_float(frame) if name == "__float__" else self if name in SAME_INT else self.specialise(frame)


def is_int(value: Value) -> bool:
    """Whether it is an int, drawn or known."""
    return isinstance(value, DrawnInt) or (value.is_constant() and type(value.constant()) is int)
