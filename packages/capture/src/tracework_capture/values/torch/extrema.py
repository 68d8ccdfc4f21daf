"""min() and max() of tensors of one number, and of those and numbers: data decides which of its arguments Python gives back.

Of tensors the graph chooses a copy, as a selection between two arms does (graph/replaced.py). Of a tensor and a number it is either, and Python
picks the object itself when the graph has run; tensors are computed with what `torch.where` takes meanwhile.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from ..._torch.settings import any_autocast
from ...graph.replaced import may_be_replaced, note_replaced
from ...guards.kinds import COMPARE_FUNCTIONS
from ..plain.rows_operators import EXTREMA
from ..protocol.kinds import AbstractTensor, is_plain_tensor
from ..protocol.operators import binary
from ..protocol.value import Emitter, Frame, Value

EXACT = (torch.float32, torch.float64)
EXACT_ANYWHERE = ("+", "-", "*")
EXACT_ON_CPU = (*EXACT_ANYWHERE, "/")
"""Operators for which a tensor of these dtypes computes the same with a tensor of one number, of its dtype, as with that number: a GPU
multiplies by the reciprocal of a number, and powers have ways of their own for some numbers."""


class ChosenNumber(Value):
    """A tensor of one number or a number: `first` where the tensor `truth` is true, else `second`. `tensor` is what it is as a tensor."""

    description = "a tensor or a number, as data decides"
    cls = object
    is_chosen_by_data = True

    def __init__(self, truth: Value, first: Value, second: Value, tensor: AbstractTensor) -> None:
        super().__init__(None)
        self.chosen = truth, first, second
        self.tensor = tensor

    def same_object(self, other: Value) -> bool | None:
        return True if self is other else None

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> Value:
        """What stands for it in arithmetic with these tensors."""
        example = self.tensor.example
        is_known = op in EXACT_ON_CPU and (op in EXACT_ANYWHERE or example.device.type == "cpu")
        if is_known and example.dtype in EXACT and all(t.example.dtype is example.dtype for t in tensors):
            return self.tensor
        return frame.break_graph("data_dependent_branch", self.describe())

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if isinstance(other, AbstractTensor):
            return None
        if not isinstance(other, ChosenNumber) and not (other.is_constant() and type(other.constant()) in (int, float)):
            return super().binary(frame, op, other, reverse)
        truth, *pair = self.chosen
        found = [binary(frame, op, *((other, value) if reverse else (value, other))) for value in pair]
        made = either(frame, truth, *found)
        return frame.break_graph("data_dependent_branch", self.describe()) if made is None else made

    def reload(self, emit: Emitter) -> str:
        truth, first, second = self.chosen
        return f"({emit.load(first)} if {emit.load(truth)} else {emit.load(second)})"


def extremum_of_tensors(frame: Frame, op: str, items: list[Value]) -> Value | None:
    """The one of the items than which none is smaller (op is <) or larger (>); None where it cannot be chosen by the graph."""
    code = frame.code
    key = code.co_filename, code.co_firstlineno, code.co_name, frame.current.index
    outside = frame.modes.transforms or frame.modes.function_modes or frame.modes.subclass_functions_off or frame.modes.inference
    if outside or key in frame.plan.learnt.not_selected or any_autocast() or not all(map(is_choice, items)):
        return None
    best = items[0]
    for item in items[1:]:
        if item.is_constant() and best.is_constant():
            best = item if COMPARE_FUNCTIONS[op](item.constant(), best.constant()) else best
            continue
        truth = frame.graph.call(frame, COMPARE_FUNCTIONS[op], (as_tensor(item), as_tensor(best)))
        found = either(frame, truth, item, best, key)
        if found is None:
            return None
        best = found
    return best


def is_choice(value: Value) -> bool:
    """Whether the graph may choose it: a number, or a tensor of one number of which a copy is as good."""
    if isinstance(value, ChosenNumber):
        return True
    if is_plain_tensor(value):
        example = value.example
        return example.ndim == 0 and not example.dtype.is_complex and example.dtype is not torch.bool and may_be_replaced(value)
    return value.is_constant() and type(value.constant()) in (int, float)


def as_tensor(value: Value) -> Value:
    """What stands for it in the graph."""
    return value.tensor if isinstance(value, ChosenNumber) else value


def either(frame: Frame, truth: Value, first: Value, second: Value, key: Any = None) -> Value | None:
    """first where the data is true, else second; None where those are not of one kind."""
    operands = [as_tensor(value) for value in (first, second)]
    kinds = {(t.example.dtype, t.example.device) for t in operands if isinstance(t, AbstractTensor)}
    numbers = [value.constant() for value in operands if value.is_constant()]
    if len(kinds) != 1 or not all(is_exact(number, *kinds) for number in numbers):
        return None
    made = cast(AbstractTensor, frame.graph.call(frame, torch.where, (truth, *operands)))
    if is_plain_tensor(first) and is_plain_tensor(second):
        for given in (first, second):
            note_replaced(frame, key, given, given, made)
        return made
    return ChosenNumber(truth, first, second, made)


def is_exact(number: float, kind: tuple[torch.dtype, torch.device]) -> bool:
    """Whether a tensor of this dtype holds the number itself."""
    try:
        return bool(torch.tensor(number, dtype=kind[0]).item() == number)
    except (OverflowError, RuntimeError):
        return False


EXTREMA["tensor"] = extremum_of_tensors
