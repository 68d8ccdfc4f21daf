"""Python ints that torch.while_loop carries: tensors of one number in the graphs of its condition and body, ints of Python before and after.

An int of Python has no largest one, and what each round multiplies grows beyond 64 bits. A round may therefore hand on only what it got with
small numbers added; what else is computed from that may be compared, and go into tensors.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, NoReturn, cast

import torch

from ....guards.kinds import COMPARE_FUNCTIONS
from ...number.deferred import read_deferred
from ...number.symint import SymNumber
from ...plain.iterators import PartialBuiltin
from ...plain.sequence import SequenceValue, TupleValue
from ...protocol.constant import ConstantValue
from ...protocol.kinds import AbstractTensor
from ...protocol.operators import compare
from ...protocol.value import Frame, Value
from ..structure import leaves, rebuilt
from ..tensor import TensorValue

SMALL, LARGE, MOST_STEPS = 2**12, 2**40, 4
"""What may be added or multiplied with, where a loop begins, how often a round may add: 2**36 rounds, which take days, stay within 64 bits."""
STEPS = {"+": torch.add, "-": torch.sub}
OTHERS = {"*": torch.mul, "//": torch.floor_divide, "%": torch.remainder}
EXACT = ("+", "-", "*", "/", "+=", "-=", "*=", "/=", *COMPARE_FUNCTIONS)
"""Operators that give the same with a number and with a tensor that holds it."""


class CarriedInt(Value):
    """An int that is known when the loop runs, over a tensor of the graph. `steps`: how often something was added to what the round got; None
    for what no round may hand on."""

    description = "an int that a loop carries"
    cls = int

    def __init__(self, tensor: Any, steps: int | None = 0) -> None:
        super().__init__(None)
        self.tensor = tensor
        self.steps = steps

    def held(self) -> Iterable[Any]:
        return (self.tensor,)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if isinstance(other, TensorValue) or op.endswith("="):
            return None
        pair = (operand(other), self.tensor) if reverse else (self.tensor, operand(other))
        small, steps = is_small(other), None
        if self.steps is None or not small and getattr(other, "steps", None) is None:
            return self.unknown(frame, op)
        if small and (op == "+" or op == "-" and not reverse):
            steps = self.steps + 1 if self.steps < MOST_STEPS else None
        elif op not in STEPS and (not small or op != "*" and (reverse or op not in OTHERS or other.constant() <= 0)):
            return self.unknown(frame, op)
        return CarriedInt(frame.graph.call(frame, (STEPS | OTHERS)[op], pair), steps)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if not is_int(other):
            return None if isinstance(other, TensorValue) else self.unknown(frame, op)
        return CarriedTruth(frame.graph.call(frame, COMPARE_FUNCTIONS[op], (self.tensor, operand(other))))

    def unknown(self, frame: Frame, op: str | None) -> NoReturn:
        frame.break_graph("operation_unknown", f"{op} of {self.describe()}")

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> Value:
        """The tensor in its place, where that makes no other dtype and no other digits."""
        own_dtype = all(t.example.ndim or t.example.dtype.is_floating_point or t.example.dtype.is_complex for t in tensors)
        return cast("AbstractTensor", self.tensor) if own_dtype and op in EXACT else self.unknown(frame, op)


class CarriedTruth(Value):
    """What a comparison of carried ints gives."""

    cls = bool

    def __init__(self, tensor: Any) -> None:
        super().__init__(None)
        self.tensor = tensor

    def held(self) -> Iterable[Any]:
        return (self.tensor,)

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> Value:
        if op not in ("&", "|") or any(t.example.dtype is not torch.bool for t in tensors):
            return frame.break_graph("operation_unknown", f"{op} of a comparison of ints that a loop carries")
        return cast("AbstractTensor", self.tensor)


def is_small(value: Value) -> bool:
    return value.is_constant() and type(value.constant()) is int and abs(value.constant()) <= SMALL


def is_int(value: Value) -> bool:
    """Whether it is an int of 64 bits."""
    if isinstance(value, (CarriedInt, SymNumber)):
        return True
    return value.is_constant() and type(value.constant()) is int and abs(value.constant()) < 2**63


def operand(value: Value) -> Value:
    """What stands for an int in a node."""
    return value.tensor if isinstance(value, CarriedInt) else value


# --- the loop ------------------------------------------------------------------------------------------------------------------


def places_of_ints(frame: Frame, carried: SequenceValue) -> frozenset[int]:
    """Which of the leaves that a loop begins with are ints."""
    return frozenset(at for at, leaf in enumerate(leaves(frame, carried)) if is_begin(frame, leaf))


def is_begin(frame: Frame, value: Value) -> bool:
    """Whether it is an int that a loop may begin with; a size is guarded to be one."""
    if isinstance(value, SymNumber):
        bounds = (("<", LARGE), (">", -LARGE))
        return all(compare(frame, op, value, ConstantValue(bound)).truth(frame) for op, bound in bounds)
    return value.is_constant() and type(value.constant()) is int and abs(value.constant()) < LARGE


def as_tensor(frame: Frame, value: Value) -> Value:
    """An int, or a comparison, as a tensor; other values as they are."""
    if isinstance(value, (CarriedInt, CarriedTruth)):
        return cast("AbstractTensor", value.tensor)
    if value.python_type() not in (int, bool):
        return value
    options = {"dtype": torch.int64 if value.python_type() is int else torch.bool, "device": torch.device("cpu")}
    return frame.graph.call(frame, torch.full, ((), value), {k: ConstantValue(v) for k, v in options.items()})


def with_tensors(frame: Frame, carried: Value, places: frozenset[int]) -> Value:
    """The carried value with tensors for its ints."""
    return rebuilt(
        frame, carried, iter([as_tensor(frame, v) if at in places else v for at, v in enumerate(leaves(frame, carried))])
    )


def over_ints(function: Value, places: frozenset[int], gives_carried: bool) -> Value:
    """A function of a loop, which gets ints for tensors at these places, and whose ints become tensors."""

    def called(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        over = leaves(frame, TupleValue(args))
        given = [CarriedInt(v) if at in places else v for at, v in enumerate(over)]
        found = function.call(frame, cast(TupleValue, rebuilt(frame, TupleValue(args), iter(given))).items, {})
        results = leaves(frame, found)
        if not gives_carried:
            return rebuilt(frame, found, iter([as_tensor(frame, v) for v in results]))
        if not all(may_go_on(frame, at in places, v) for at, v in enumerate(results)):
            return frame.break_graph("call_unknown", "torch.while_loop whose body gives other kinds of numbers than it takes")
        return with_tensors(frame, found, places)

    return PartialBuiltin(types.FunctionType, called, [function])


def may_go_on(frame: Frame, is_place: bool, value: Value) -> bool:
    """Whether a round may hand a value on, at a place of an int or another."""
    if not is_place:
        return not isinstance(value, CarriedInt)
    return value.steps is not None if isinstance(value, CarriedInt) else is_begin(frame, value)


def with_ints(frame: Frame, values: list[Any], places: frozenset[int]) -> list[Value]:
    """The results of a loop, the tensors at these places read as ints of Python."""
    return [read_int(frame, v) if at in places else v for at, v in enumerate(values)]


def read_int(frame: Frame, tensor: AbstractTensor) -> Value:
    found = read_deferred(frame, tensor, "item")
    return found if found is not None else frame.break_graph("tensor_to_python", "an int that torch.while_loop carried is needed")
