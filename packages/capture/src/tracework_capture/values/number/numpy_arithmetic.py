"""What NumPy computes of one of its numbers that changes from call to call and another number."""

from __future__ import annotations

from collections.abc import Callable

from ..protocol.registry import Registry
from ..protocol.value import Frame, Value

NUMPY_OPERATORS: Registry[str, Callable[[Frame, Value, Value], Value | None]] = Registry("NUMPY_OPERATORS")
"""Operator -> its result, of (frame, left, right), one of which is such a number; None where that needs the number."""


def numpy_arithmetic(frame: Frame, op: str, number: Value, other: Value, reverse: bool) -> Value | None:
    """`number op other`, or `other op number` when reverse; None where that needs the number."""
    rule = NUMPY_OPERATORS.get(op)
    return None if rule is None else rule(frame, *((other, number) if reverse else (number, other)))
