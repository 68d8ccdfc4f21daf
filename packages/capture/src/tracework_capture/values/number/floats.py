"""Floats that change from call to call: a graph input, computed with as a tensor of one number in double precision, which is what
Python computes with. What needs the number itself fixes it, and the entry then holds for that number only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy
import torch
from torch import fx
from tracework_primops.symbols import Condition

from ... import _torch
from ...arrays import DTYPES
from ...graph.specialised import truth_of_state
from ...guards.kinds import COMPARE_FUNCTIONS
from ...sources import Source
from ..protocol.binding import attribute_of_builtin
from ..protocol.constant import BINARY_FUNCTIONS, ConstantValue
from ..protocol.kinds import AbstractFloat, AbstractTensor, is_plain_tensor, tensor_value
from ..protocol.make import make
from ..protocol.operators import binary
from ..protocol.special_methods import REFLECTED
from ..protocol.value import Frame, Value
from ..protocol.wraps import changes_in
from .float_formulas import Formula, FormulaInput, Roots, answer, called, computed_by_python, formula_of
from .number import Number, NumberOfNode, numpy_arithmetic
from .size_formulas import float_of_size
from .symint import SymNumber

PURE_METHODS = {name: f"float.{name}" for name in ("is_integer", "__int__")}
PURE_METHODS |= {f"__{name}__": name for name in ("abs", "round", "ceil", "floor", "trunc")}
"""Method -> the function that formulas call for it."""
ARITHMETIC = ("+", "-", "*")


class FloatValue(AbstractFloat, NumberOfNode):
    """A float. `node` gives it as a tensor; `hint` is its value now; `roots` are the inputs and sizes that it was computed from, with
    their values; `input_formula` is what it is of inputs, where Python can compute it from those alone."""

    description = "a float that changes"
    cls = float
    roots: Roots = frozenset()
    input_formula: Formula | None = None
    never_zero = False
    """Whether it is another number than 0 in all calls."""

    def __init__(
        self, node: Any, hint: float, roots: Roots, source: Source | None = None, formula: Formula | None = None
    ) -> None:
        super().__init__(source)
        self.node = node
        self.hint = hint
        self.roots = roots
        self.known = False
        self.input_formula = formula

    def is_constant(self) -> bool:
        return self.known

    def constant(self) -> Any:
        return self.hint

    def specialise(self, frame: Frame) -> Any:
        if not self.known:
            for root, value in self.roots:
                if isinstance(root, Source):
                    frame.guard("CONSTANT", root, value)
                else:
                    frame.symbols.guard(Condition.compare("==", root, value), frame.user_location())
            self.known = True
        return self.hint

    def as_float(self) -> Value:
        """float(self)"""
        return self

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> Value:
        """What stands for the float in arithmetic with these tensors: the result has their dtype, as with a float."""
        if shown_to_hooks(frame):
            return self.as_known(frame)
        kinds = {(t.example.dtype, t.example.ndim > 0) for t in tensors}
        if all(many and dtype.is_floating_point for dtype, many in kinds):
            return self.as_tensor(frame)
        if kinds <= {(torch.float64, True), (torch.float64, False)}:
            return self.as_tensor(frame)
        if kinds == {(torch.float32, False)}:
            return frame.graph.call_method(frame, "to", (self.as_tensor(frame), torch.float32))
        if not any(dtype.is_floating_point or dtype.is_complex for dtype, _ in kinds):
            return frame.graph.call_method(frame, "to", (self.as_tensor(frame), torch.get_default_dtype()))
        return self.as_known(frame)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        op = op.rstrip("=")
        if not self.known and not issubclass(other.python_type(), (int, float, complex)):  # which a float leaves to the other
            return None
        if isinstance(other, NumpyFloat):
            other = other.as_known(frame)
        if isinstance(other, StepCount) and not isinstance(self, StepCount) and not self.known:
            return other.binary(frame, op, self, not reverse)
        number = float_of(frame, other) if isinstance(other, SymNumber) and not self.known else other
        if not self.known and self.stays(op, number, reverse):
            return self.computed(frame, op, number, reverse)
        made = computed_by_python(frame, f"({{}} {op} {{}})", *((other, self) if reverse else (self, other)))
        if made is not None:
            return made
        if isinstance(other, FloatValue):
            other = other.as_known(frame)
        number = self.as_known(frame)
        return (
            other.binary(frame, op, number, not reverse)
            if isinstance(other, SymNumber)
            else number.binary(frame, op, other, reverse)
        )

    def stays(self, op: str, other: Value, reverse: bool) -> bool:
        """Whether tensors give the number, or the error, that floats would."""
        if isinstance(other, FloatValue):
            return op in ARITHMETIC or (op == "/" and (self if reverse else other).never_zero)
        if not other.is_constant() or type(other.constant()) not in (int, float):
            return False
        return op in ARITHMETIC or (op == "/" and (self.never_zero if reverse else other.constant() != 0))

    def computed(self, frame: Frame, op: str, other: Value, reverse: bool) -> Value:
        mine = self.as_tensor(frame)
        theirs = other.as_tensor(frame) if isinstance(other, FloatValue) else ConstantValue(float(other.constant()))
        number = other.hint if isinstance(other, FloatValue) else other.constant()
        function = BINARY_FUNCTIONS[op]
        made = frame.graph.compute(frame, function, (theirs, mine) if reverse else (mine, theirs))
        late = isinstance(self, DeferredFloat) or isinstance(other, DeferredFloat)
        hint = 0.0 if late else function(number, self.hint) if reverse else function(self.hint, number)
        roots = self.roots | (other.roots if isinstance(other, FloatValue) else frozenset())
        value = self.like(other)(made.node, hint, roots)
        value.input_formula = formula_of(f"({{}} {op} {{}})", *((other, self) if reverse else (self, other)))
        return value

    def like(self, other: Value) -> Callable[..., FloatValue]:
        """The class of what is computed from this and another value."""
        return other.like(ConstantValue(0)) if isinstance(other, FloatValue) else FloatValue

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if isinstance(other, AbstractTensor):
            return None
        if isinstance(other, SymNumber):
            return other.compare(frame, REFLECTED[op], self.as_known(frame))
        if self.is_input() and other.is_constant() and type(other.constant()) in (int, float):
            return ConstantValue(self.ordered(frame, op, other.constant()))
        found = answer(frame, f"({{}} {op} {{}})", self, other)
        if found is not None:
            return ConstantValue(found)
        return super().compare(frame, op, other)

    def is_input(self) -> bool:
        """Whether the program was given it as it is."""
        return not self.known and self.source is not None and self.roots == {(self.source, self.hint)}

    def ordered(self, frame: Frame, op: str, number: float) -> bool:
        """On which side of a number it is, which holds of the calls of this entry."""
        answer = COMPARE_FUNCTIONS[op](self.hint, number)
        frame.guard("ORDER", self.source, (op, number, answer))
        return answer

    def unary(self, frame: Frame, op: str) -> Value:
        if op == "-" and not self.known:
            made = frame.graph.compute(frame, torch.neg, (self.as_tensor(frame),))
            value = self.like(ConstantValue(0))(made.node, -self.hint, self.roots)
            value.input_formula = formula_of("(-{})", self)
            return value
        return self if op == "+" else super().unary(frame, op)

    def truth(self, frame: Frame) -> bool:
        if self.is_input():
            return self.ordered(frame, "!=", 0)
        found = answer(frame, "bool({})", self)
        return super().truth(frame) if found is None else found

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "real":
            return self
        return ConstantValue(0.0) if name == "imag" else attribute_of_builtin(frame, self, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__float__" and not args and not kwargs:
            return self.as_float()
        found = called(frame, PURE_METHODS[name], [self, *args]) if name in PURE_METHODS and not kwargs else None
        if found is not None:
            return found
        return super().call_method(frame, name, args, kwargs)


class NumpyFloat(FloatValue):
    """A float of NumPy that the program was given, open in arithmetic with tensors, which take it as any float, in NumPy's own arithmetic
    and among arrays; all else needs the number."""

    description = "a float of NumPy that changes"

    def __init__(self, node: fx.Node, number: Any, source: Source) -> None:
        super().__init__(node, number, frozenset(((source, number),)), source)
        self.cls = type(number)

    def as_float(self) -> Value:
        if self.known:
            return ConstantValue(float(self.hint))
        formula = Formula(f"float({self.node.name})", (FormulaInput(self.node.name, self.node, self.source, self.hint),))
        return FloatValue(self.node, float(self.hint), self.roots, formula=formula)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if isinstance(other, AbstractTensor) and not self.known:
            return None
        made = None if self.known else numpy_arithmetic(frame, op.rstrip("="), self, other, reverse)
        return Number.binary(self, frame, op, other, reverse) if made is None else made

    def as_array_tensor(self, frame: Frame) -> AbstractTensor:
        """The tensor of one number, of its dtype, that stands for it among arrays."""
        return tensor_value(frame.graph.call_method(frame, "to", (self.as_tensor(frame), DTYPES[numpy.dtype(type(self.hint))])))

    compare, unary, truth, getattr = Number.compare, Number.unary, Number.truth, Number.getattr

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        as_float = name == "__float__" and not args and not kwargs
        return self.as_float() if as_float else Number.call_method(self, frame, name, args, kwargs)


class DeferredFloat(FloatValue):
    """A float that is known only when the compiled code runs, or computed from one; the hint means nothing."""

    def __init__(self, node: fx.Node, hint: float = 0.0, roots: Roots = frozenset(), source: Source | None = None) -> None:
        super().__init__(node, 0.0, frozenset(), source)

    def like(self, other: Value) -> Callable[..., FloatValue]:
        return type(self)


class DataFloat(DeferredFloat):
    """The number of a tensor: what needs it while tracing breaks the graph, and Python gets it when the graph has run."""

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        divisor = self if reverse else other
        if op.rstrip("=") == "/" and isinstance(divisor, DataFloat) and not isinstance(other, AbstractTensor):
            divisor.never_zero = divisor.never_zero or truth_of_state(frame, divisor.node) is True
        return super().binary(frame, op, other, reverse)

    def specialise(self, frame: Frame) -> Any:
        return frame.break_graph("tensor_to_python", "the number in a tensor is needed while tracing")

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if isinstance(other, FloatValue) and not other.known:
            theirs: Value = other.as_tensor(frame)
        elif is_exact_number(other):
            theirs = ConstantValue(float(other.constant()))
        else:
            return super().compare(frame, op, other)
        return DataBool(frame.graph.compute(frame, COMPARE_FUNCTIONS[op], (self.as_tensor(frame), theirs)).node, self)


class DataBool(NumberOfNode):
    """What a comparison of the number of a tensor gives: known when the graph has run; what steers by it breaks the graph, or both arms
    are traced."""

    description = "a comparison of data"
    cls = bool

    def __init__(self, node: fx.Node, number: Value) -> None:
        super().__init__(None)
        self.node, self.number = node, number

    def specialise(self, frame: Frame) -> Any:
        return frame.break_graph("tensor_to_python", "the number in a tensor is needed while tracing")

    def truth(self, frame: Frame) -> bool:
        return self.as_tensor(frame).truth(frame)


class StepCount(DataFloat):
    """How many steps an optimizer has made, another number that an update rule of torch.optim reads from its tensors (a norm), or what is
    computed from them, as corrections of bias are; where Python needs the number itself, it is a tensor, as under torch.compile."""

    def stays(self, op: str, other: Value, reverse: bool) -> bool:
        known = other.is_constant() and type(other.constant()) in (int, float)
        if known and op == "/" and not reverse and not other.constant():
            return False
        return (op in ARITHMETIC or op in ("/", "**")) and (known or isinstance(other, FloatValue))

    def computed(self, frame: Frame, op: str, other: Value, reverse: bool) -> Value:
        theirs = other.as_tensor(frame) if isinstance(other, FloatValue) else ConstantValue(float(other.constant()))
        operands = (self.as_tensor(frame), theirs)
        return StepCount(
            tensor_value(frame.graph.call(frame, BINARY_FUNCTIONS[op], operands[::-1] if reverse else operands)).node
        )

    def as_known(self, frame: Frame) -> Value:
        return self.as_tensor(frame)


def is_exact_number(value: Value) -> bool:
    """Whether it is a float, or an int that one stands for."""
    number = value.constant() if value.is_constant() else None
    return type(number) is float or (type(number) is int and abs(number) <= 2**53)


def kind_of_choice(condition: Value, first: Value, second: Value) -> type[FloatValue] | None:
    """The class of the number that is one of two when the graph has run; None where it is no float for all data."""
    values = (first, second)
    if not all(isinstance(v, FloatValue) or is_exact_number(v) for v in values):
        return None
    asked = condition.number if isinstance(condition, DataBool) else None
    if any(isinstance(v, StepCount) for v in (asked, *values)):
        return StepCount
    return DataFloat if all(v.python_type() is float for v in values) else None


def either(frame: Frame, condition: AbstractTensor, kind: Callable[..., FloatValue], first: Value, second: Value) -> FloatValue:
    """first or second, two numbers, as a tensor of one truth tells, as a value of this class."""
    if first.is_constant() and second.is_constant():
        first = frame.graph.call(frame, torch.full, ((), float(first.constant())), {"dtype": torch.float64})
    operands = (v.as_tensor(frame) if isinstance(v, FloatValue) else v for v in (first, second))
    return kind(frame.graph.compute(frame, torch.where, (condition, *operands)).node)


def extremum_of_data(
    frame: Frame, compare: Callable[[Frame, str, Value, Value], Value], op: str, items: list[Value]
) -> Value | None:
    """min or max of numbers of which some are known when the graph has run; None for others."""
    best = items[0]
    for item in items[1:]:
        found = compare(frame, op, item, best)
        kind = kind_of_choice(found, item, best) if isinstance(found, DataBool) else None
        if isinstance(found, DataBool) and kind is not None:
            best = either(frame, found.as_tensor(frame), kind, item, best)
        elif found.is_constant():
            best = item if found.constant() else best
        else:
            return None
    return best


def changes(value: Value) -> TypeGuard[FloatValue]:
    """A float without a number that is known while tracing."""
    return isinstance(value, FloatValue) and not value.known and not isinstance(value, StepCount)


def shown_to_hooks(frame: Frame) -> bool:
    """Whether hooks of saved tensors see what autograd saves: a tensor that stands for a number would be shown to them, no number is."""
    around = _torch.autograd.any_saved_tensor_hooks()
    frame.guards.state("saved_tensor_hooks", around)
    return around or frame.modes.uses_saved_hooks


def number_of_tensor(frame: Frame, tensor: AbstractTensor, name: str) -> DataFloat | None:
    """item() or float() of a tensor of one number, on the CPU, where computing in double precision is what Python does; else None."""
    example = tensor.example
    real = example.dtype.is_floating_point or (name == "__float__" and not example.dtype.is_complex)
    fits = real and example.device.type == "cpu" and not frame.modes.transforms
    if not is_plain_tensor(tensor) or not fits or type(example.numel()) is not int or example.numel() != 1:
        return None
    alone = frame.graph.call_method(frame, "reshape", (frame.graph.call_method(frame, "detach", (tensor,)), ()))
    kind = StepCount if is_update_rule(frame) else DataFloat
    return kind(tensor_value(frame.graph.call_method(frame, "to", (alone,), {"dtype": torch.float64, "copy": True})).node)


def is_update_rule(frame: Frame) -> bool:
    """Whether this is the code of an update rule of torch.optim."""
    module = frame.globals.get("__name__")
    return type(module) is str and module.startswith("torch.optim.") and frame.code.co_qualname.startswith(UPDATE_RULES)


UPDATE_RULES = ("_single_tensor_", "_multi_tensor_")


def float_of(frame: Frame, size: SymNumber) -> Value:
    """float(size) of a symbolic int."""
    return float_of_size(frame, size) or ConstantValue(float(size.specialise(frame)))


def plus_lost(frame: Frame, total: Value, lost: Value) -> Value:
    """total + lost, where lost is a finite number other than 0 (which could turn the sign of a zero); total otherwise."""
    if lost.is_constant():
        number = lost.constant()
        if not number or not math.isfinite(number):
            return total
        return ConstantValue(total.constant() + number) if total.is_constant() else binary(frame, "+", total, lost)
    if not isinstance(lost, FloatValue):
        return binary(frame, "+", total, lost)
    if total.is_constant() or not isinstance(total, FloatValue):
        return plus_lost(frame, total, lost.as_known(frame))
    alone, rest = total.as_tensor(frame), lost.as_tensor(frame)
    call = frame.graph.compute
    counts = call(
        frame, torch.logical_and, (call(frame, torch.isfinite, (rest,)), call(frame, torch.ne, (rest, ConstantValue(0.0))))
    )
    made = call(frame, torch.where, (counts, call(frame, operator.add, (alone, rest)), alone))
    hint = total.hint + lost.hint if lost.hint and math.isfinite(lost.hint) else total.hint
    return total.like(lost)(made.node, hint, total.roots | lost.roots)


@changes_in(float, numpy.float64, numpy.float32)
def changing_float(frame: Frame, number: Any, source: Source) -> FloatValue | None:
    """The value of a float that had another value in an earlier capture, or is one of NumPy, which programs compute, not write; None when it
    stays a constant."""
    if frame.options.dynamic is False or not math.isfinite(number):
        return None
    if type(number) is float and not frame.inputs.changes(source, number):
        return None
    found: FloatValue | None = frame.inputs.numbers.get(source)
    if found is None:
        frame.guard("TYPE", source, type(number))
        node = frame.graph.float_input(source, number)
        if type(number) is not float:
            found = frame.inputs.numbers[source] = NumpyFloat(node, number, source)
            return found
        formula = Formula(node.name, (FormulaInput(node.name, node, source, number),))
        found = frame.inputs.numbers[source] = FloatValue(node, number, frozenset(((source, number),)), source, formula)
    return found


make.provide(float=FloatValue)
