"""Ints of NumPy that the program was given and that change from call to call, and the ints that NumPy computes from one of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy
import torch

from ...arrays import DTYPES
from ...atoms import NUMPY_NUMBERS
from ...formulas import ERRORS, INT_BITS, formula_function, int_of_formula
from ...graph.inputs import symbolic_int
from ...guards.kinds import COMPARE_FUNCTIONS
from ...sources import ComputedInt, Source
from ..protocol.constant import BINARY_FUNCTIONS, UNARY_FUNCTIONS, ConstantValue
from ..protocol.kinds import AbstractTensor, tensor_value
from ..protocol.make import make
from ..protocol.unspecialised import UnspecialisedConstant
from ..protocol.value import Emitter, Frame, Value
from ..protocol.wraps import changes_in
from .float_formulas import MOST_TEXT, answer_of
from .number import numpy_arithmetic
from .symint import size_value

NUMPY_INTS = frozenset(kind for kind in NUMPY_NUMBERS if issubclass(kind, numpy.integer))
EXACT = frozenset(("+", "-", "*", "//", "%", "&", "|", "^", ">>"))
"""What Python computes from ints as NumPy does where the result fits its type, and in a short time."""
NAME = "n"


class NumpyInt(UnspecialisedConstant):
    """Open in arithmetic with tensors, which take it as any int, in NumPy's own with one number, and where the program makes an int of it
    (`size`) or a text; all else needs the number.

    It is the int `text` over the number `given` at `place`. What the program was given has a source, results have none.
    """

    description = "an int of NumPy that changes"

    def __init__(
        self, frame: Frame, number: Any, place: Source, given: Any, text: str = f"int({NAME})", source: Source | None = None
    ) -> None:
        super().__init__(number, lambda: frame.guard("CONSTANT", place, given), source)
        self.frame, self.place, self.given, self.text = frame, place, given, text

    @property
    def hint(self) -> Any:
        """What it is in this call."""
        return self.obj

    @functools.cached_property
    def size(self) -> Value:
        """The int."""
        source = ComputedInt(self.place, self.text, NAME)
        return size_value(self.frame, symbolic_int(self.frame, int(self.obj), source))

    def specialise(self, frame: Frame) -> Any:
        """The number of this call; the entry then holds for it only."""
        return self.known().constant()

    def text_of(self, other: Value) -> str | None:
        """What stands for another number in a formula over this one, or None."""
        if isinstance(other, NumpyInt) and other.settled is None and other.place == self.place:
            return other.text
        number: Any = other.constant() if type(other) is ConstantValue else None
        is_int = type(number) in (int, bool, type(self.obj)) and int(number).bit_length() <= INT_BITS
        return f"({int(number)})" if is_int else None

    def computed(self, frame: Frame, text: str, function: Callable[..., Any], *operands: Any) -> NumpyInt | None:
        """The int that NumPy computes, which is that of the formula in all calls of this entry; None where it is another now, or none."""
        if self.settled is not None or len(text) > MOST_TEXT:
            return None
        try:
            with numpy.errstate(all="ignore"):
                number = function(*operands)
            exact = formula_function(text, NAME)(self.given)
        except (*ERRORS, OverflowError):
            return None
        if type(number) not in NUMPY_INTS or int(number) != exact or exact.bit_length() > INT_BITS:
            return None
        limits = numpy.iinfo(type(number))
        answer_of(frame, f"{limits.min} <= {text} <= {limits.max}", NAME, self.place, self.given)
        return NumpyInt(frame, number, self.place, self.given, text)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if isinstance(other, AbstractTensor) and self.settled is None:
            return None
        op, theirs = op.rstrip("="), self.text_of(other)
        if theirs is not None and op in EXACT:
            values, texts = [self.obj, other.obj], [self.text, theirs]
            if reverse:
                values, texts = values[::-1], texts[::-1]
            made: Value | None = self.computed(frame, f"({texts[0]} {op} {texts[1]})", BINARY_FUNCTIONS[op], *values)
            if made is not None:
                return made
        made = None
        if self.settled is None and (op == "/" or other.python_type() not in (int, bool)):
            made = numpy_arithmetic(frame, op, self, other, reverse)
        return self.known().binary(frame, op, other.as_known(frame), reverse) if made is None else made

    def as_array_tensor(self, frame: Frame) -> AbstractTensor:
        """The tensor of one number, of its dtype, that stands for it among arrays."""
        dtype = ConstantValue(DTYPES[numpy.dtype(type(self.obj))])
        return tensor_value(frame.graph.call(frame, torch.full, (make.tuple([]), self.size), {"dtype": dtype}))

    def unary(self, frame: Frame, op: str) -> Value:
        return self.computed(frame, f"({op}{self.text})", UNARY_FUNCTIONS[op], self.obj) or self.known().unary(frame, op)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if self.settled is None:
            if isinstance(other, AbstractTensor):
                return None
            theirs = self.text_of(other)
            if theirs is not None:
                answer_of(frame, f"{self.text} {op} {theirs}", NAME, self.place, self.given)
                return ConstantValue(COMPARE_FUNCTIONS[op](self.obj, other.obj))
        return self.known().compare(frame, op, other.as_known(frame))

    def as_index(self, frame: Frame) -> Value:
        return self.call_method(frame, "__index__", [], {})

    def truth(self, frame: Frame) -> bool:
        if self.settled is not None:
            return self.known().truth(frame)
        return answer_of(frame, f"{self.text} != 0", NAME, self.place, self.given)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__int__", "__index__", "item") and not args and not kwargs and self.settled is None:
            return self.size
        return self.known().call_method(frame, name, args, kwargs)

    def as_operand(self, frame: Frame, tensors: list[AbstractTensor], op: str | None = None) -> Value:
        """What stands for it in arithmetic with tensors."""
        return self.size if self.settled is None else self.known()

    def as_graph_arg(self, frame: Frame) -> Any:
        return self.size.as_graph_arg(frame) if self.settled is None else self.known().as_graph_arg(frame)

    def reload(self, emit: Emitter) -> str:
        if self.source is not None:
            return emit.source(self.source)
        number = f"{emit.const(int_of_formula)}({self.text!r}, {NAME!r}, {emit.source(self.place)})"
        return f"{emit.const(type(self.obj))}({number})"


@changes_in(*NUMPY_INTS)
def changing_numpy_int(frame: Frame, number: Any, source: Source) -> NumpyInt | None:
    """The value of an int that had another value in an earlier capture; None when it stays a constant."""
    if frame.options.dynamic is False or not frame.inputs.changes(source, number) or not frame.options.allows_symbolic_sizes:
        return None
    if int(number).bit_length() > INT_BITS:
        return None
    frame.guard("TYPE", source, type(number))
    made = NumpyInt(frame, number, source, number, source=source)
    made.size  # noqa: B018  # an int of 62 bits, as a guard says
    return made
