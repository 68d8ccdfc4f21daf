"""What numbers that are not known while tracing have in common: what needs the number itself asks for the one of this call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from ... import _torch
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.make import make
from ..protocol.memory import remember
from ..protocol.registry import Registry
from ..protocol.value import Emitter, Frame, Value

NUMPY_OPERATORS: Registry[str, Callable[[Frame, Value, Value], Value | None]] = Registry("NUMPY_OPERATORS")
"""Operator -> what NumPy computes of (frame, left, right), one of them one of its numbers that changes; None where that needs the number."""


class Number(Value):
    """A number that is not known while tracing."""

    cls: Any = float

    def is_number(self) -> bool:
        return self.cls in (int, float, bool)

    def same_object(self, other: Value) -> bool | None:
        return True if self is other else None

    def specialise(self, frame: Frame) -> Any:
        """The number of this call, for which alone the entry then holds; breaks the graph where nobody knows it yet."""
        raise NotImplementedError

    def as_known(self, frame: Frame) -> Value:
        return ConstantValue(self.specialise(frame))

    def try_specialise(self, frame: Frame) -> bool:
        self.specialise(frame)
        return True

    def hash_key(self, frame: Frame) -> Any:
        return self.specialise(frame)

    def truth(self, frame: Frame) -> bool:
        return self.as_known(frame).truth(frame)

    def getattr(self, frame: Frame, name: str) -> Value:
        return self.as_known(frame).getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.as_known(frame).call_method(frame, name, args, kwargs)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        return self.as_known(frame).binary(frame, op, other.as_known(frame), reverse)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        return None if isinstance(other, AbstractTensor) else self.as_known(frame).compare(frame, op, other.as_known(frame))

    def unary(self, frame: Frame, op: str) -> Value:
        return self.as_known(frame).unary(frame, op)

    def as_graph_arg(self, frame: Frame) -> Any:
        return self.as_known(frame).as_graph_arg(frame)


class NumberOfNode(Number):
    """A number that a node of the graph gives, as a tensor of one."""

    node: fx.Node

    def as_tensor(self, frame: Frame) -> AbstractTensor:
        """The tensor of one number."""
        if self.node.meta.get("moved"):
            return frame.break_graph("autograd_function", f"{self.describe()}, made inside, is used outside")
        found = make.tensor(self.node, self.node.meta["example_value"])
        remember(frame, found)
        return found

    def reload(self, emit: Emitter) -> str:
        if self.node.meta.get("moved"):
            return super().reload(emit)
        return f"{emit.const(_torch.modes.item)}({emit.graph_output(self.node)})"


def largest(op: str, first: int, second: int) -> int:
    """What the results of an operator of ints, one of + - *, are not farther from 0 than, given that of its operands."""
    return first * second if op == "*" else first + second


def numpy_arithmetic(frame: Frame, op: str, number: Value, other: Value, reverse: bool) -> Value | None:
    """`number op other` of a number of NumPy, or `other op number` when reverse; None where that needs the number."""
    rule = NUMPY_OPERATORS.get(op)
    return None if rule is None else rule(frame, *((other, number) if reverse else (number, other)))
