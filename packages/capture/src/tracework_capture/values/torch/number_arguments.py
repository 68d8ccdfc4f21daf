"""Operators whose number argument (alpha, value) is a tensor: eager reads the number out of it, which a graph cannot.

NUMBER_FORMS: operator -> the same arithmetic without that argument, in eager's order of operations and in the dtype that eager
computes in: the tensors' common one, float32 for the halves, which are rounded once at the end. What else is given breaks the graph, as
reading the number does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from ..number.floats import FloatValue
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import call, method
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from .call import call_torch
from .dtypes import EXACT, WIDE, as_kind, fits
from .foreach import given_back, writes_to_lists

if TYPE_CHECKING:
    from ..protocol.calls import Handler
    from ..protocol.value import Frame, Value

    Form = Callable[[Frame, str, AbstractTensor, list[AbstractTensor], AbstractTensor], AbstractTensor]


def is_number_tensor(value: Value | None) -> bool:
    """Whether a tensor stands where a number belongs."""
    return isinstance(value, AbstractTensor)


def computed_in(tensors: Sequence[Any]) -> torch.dtype | None:
    """The dtype in which eager computes with these, or None. Without dimensions they are of one dtype, as the number is then."""
    if not all(isinstance(t, AbstractTensor) for t in tensors):
        return None
    dtypes = {t.example.dtype for t in tensors}
    if len(dtypes) > 1 and not all(t.example.ndim > 0 for t in tensors):
        return None
    common = functools.reduce(torch.promote_types, dtypes)
    wide = WIDE.get(common, common)
    return wide if wide in EXACT else None


def of_kind(frame: Frame, number: AbstractTensor, tensors: Sequence[AbstractTensor]) -> AbstractTensor:
    """The number as eager reads it: it takes no part in promotion, which among tensors without dimensions it would."""
    dtype = tensors[0].example.dtype
    if number.example.dtype == dtype or all(t.example.ndim > 0 for t in tensors) or number.example.dtype.is_complex:
        return number
    return as_kind(frame, number, dtype)


def product(frame: Frame, *factors: AbstractTensor) -> AbstractTensor:
    """Their product, from left to right."""
    made = factors[0]
    for factor in factors[1:]:
        made = cast(AbstractTensor, frame.graph.call(frame, torch.mul, (made, factor)))
    return made


def changed(frame: Frame, name: str, target: AbstractTensor, change: AbstractTensor) -> AbstractTensor:
    """target.add(change) or target.add_(change)"""
    inplace = name.endswith("_")
    found = cast(AbstractTensor, frame.graph.call_method(frame, "add_" if inplace else "add", (target, change)))
    return target if inplace else found


def apply_form(
    frame: Frame,
    form: Form,
    name: str,
    tensors: Sequence[Any],
    number: AbstractTensor,
    wide: torch.dtype,
) -> AbstractTensor:
    """The form on tensors of the dtype that eager computes in; a result in half precision is rounded once."""
    target, *others = tensors
    common = functools.reduce(torch.promote_types, (t.example.dtype for t in tensors))
    number = of_kind(frame, number, tensors)
    if common in WIDE and not name.endswith("_"):
        found = form(frame, name, as_kind(frame, target, wide), [as_kind(frame, t, wide) for t in others], number)
        return as_kind(frame, found, common)
    return form(frame, name, target, [as_kind(frame, t, wide) for t in others], number)


def add(frame: Frame, name: str, target: AbstractTensor, tensors: list[AbstractTensor], number: AbstractTensor) -> AbstractTensor:
    return changed(frame, name, target, product(frame, tensors[0], number))


def sub(frame: Frame, name: str, target: AbstractTensor, tensors: list[AbstractTensor], number: AbstractTensor) -> AbstractTensor:
    return changed(frame, name, target, product(frame, tensors[0], cast(AbstractTensor, number.unary(frame, "-"))))


def addcmul(
    frame: Frame, name: str, target: AbstractTensor, tensors: list[AbstractTensor], number: AbstractTensor
) -> AbstractTensor:
    return changed(frame, name, target, product(frame, number, *tensors))


def addcdiv(
    frame: Frame, name: str, target: AbstractTensor, tensors: list[AbstractTensor], number: AbstractTensor
) -> AbstractTensor:
    scaled = cast(AbstractTensor, frame.graph.call(frame, torch.div, (product(frame, number, tensors[0]), tensors[1])))
    return changed(frame, name, target, scaled)


NUMBER_FORMS = {
    "add": (add, "alpha", 1),
    **dict.fromkeys(("sub", "subtract"), (sub, "alpha", 1)),
    "addcmul": (addcmul, "value", 2),
    "addcdiv": (addcdiv, "value", 2),
}
"""Name -> (form, the number's keyword, how many tensors come after the first)."""


def without_number(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of the form without a number argument, or None when the number is a number, or the form would round otherwise."""
    form, keyword, count = NUMBER_FORMS[name.removeprefix("_foreach_").rstrip("_")]
    number: Any = kwargs.get(keyword)
    if number is None and len(args) > count + 1:
        number = args[count + 1]
    if "scalars" in kwargs:
        number = kwargs["scalars"]
    if isinstance(number, FloatValue) and not number.known and may_be_tensor(frame, number, args[: count + 1]):
        number = number.as_tensor(frame)
    factors = unspecialised_numbers(frame, number) if name.startswith("_foreach_") and len(args) >= count + 1 else None
    if factors is not None:
        return each_without_number(frame, form, name, args, count, factors)
    if not is_number_tensor(number) or "out" in kwargs or len(args) < count + 1:
        return None
    if name.startswith("_foreach_"):
        rows = len(args[0].unpack(frame))
        single = number.example.ndim == 0
        factors = [number if single else number.getitem(frame, ConstantValue(index)) for index in range(rows)]
        return each_without_number(frame, form, name, args, count, factors)
    wide = computed_in(args[: count + 1])
    if wide is None or number.example.numel() != 1:
        return None
    return apply_form(frame, form, name, args[: count + 1], number, wide)


def may_be_tensor(frame: Frame, number: Value, operands: list[Value]) -> bool:
    """Whether a tensor can stand for the number: eager computes with these tensors, or rows of lists of them, in a dtype that is known
    and holds the number; it refuses a larger one."""
    rows: Iterable[Sequence[Value]] = (
        [operands] if isinstance(operands[0], AbstractTensor) else zip(*(column.unpack(frame) for column in operands))
    )
    dtypes: set[Any] = {computed_in(row) for row in rows}
    return None not in dtypes and all(fits(frame, number, torch.finfo(dtype).max) for dtype in dtypes)


def with_operand(frame: Frame, args: list[Value]) -> list[Value]:
    """The arguments of tensor arithmetic with a float that changes in second place replaced by a tensor."""
    if len(args) < 2 or not isinstance(args[0], AbstractTensor) or not isinstance(args[1], FloatValue) or args[1].known:
        return args
    return [args[0], args[1].as_operand(frame, [args[0]]), *args[2:]]


def unspecialised_numbers(frame: Frame, numbers: Value | None) -> list[AbstractTensor] | None:
    """A list of numbers, some of them floats that change, as tensors and numbers; None for anything else."""
    items = numbers.unpack(frame) if isinstance(numbers, SequenceValue) else []
    if not any(isinstance(i, FloatValue) and not i.known for i in items) or not all(i.python_type() is float for i in items):
        return None
    return [i.as_tensor(frame) if isinstance(i, FloatValue) else scalar(frame, i) for i in items]


def scalar(frame: Frame, number: Value) -> AbstractTensor:
    """A number as a tensor without dims."""
    return cast(AbstractTensor, frame.graph.call(frame, torch.full, ((), number), {"dtype": torch.float64}))


def each_without_number(
    frame: Frame, form: Form, name: str, args: list[Value], count: int, factors: list[AbstractTensor]
) -> Value | None:
    """The same for lists of tensors, with a number for each of them."""
    columns = [a.unpack(frame) for a in args[: count + 1]]
    dtypes: list[Any] = [computed_in(row) for row in zip(*columns)]
    if not all(dtypes) or any(len(column) != len(factors) for column in columns):
        return None
    made = [apply_form(frame, form, name, row, factor, wide) for row, factor, wide in zip(zip(*columns), factors, dtypes)]
    return given_back(args, {}) if writes_to_lists(name) else TupleValue(made)


def method_row(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.add and its like."""
    found = without_number(frame, name, [self, *args], kwargs) if name.rstrip("_") in NUMBER_FORMS else None
    if found is not None:
        return found
    found = frame.graph.call_method(frame, name, with_operand(frame, [self, *args]), kwargs)
    return self if name.endswith("_") else found


OPERATORS = ("mul", "div", *NUMBER_FORMS)
method(torch.Tensor, *(n + end for n in OPERATORS for end in ("", "_")))(method_row)


def function_row(fn: Callable[..., Any]) -> Handler:
    """torch.add, torch._foreach_add_ and their like."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        name = fn.__name__
        found = without_number(frame, name, args, kwargs) if name.removeprefix("_foreach_").rstrip("_") in NUMBER_FORMS else None
        return found if found is not None else call_torch(frame, fn, with_operand(frame, list(args)), kwargs)

    return row


for _name in (prefix + n + end for n in OPERATORS for prefix in ("", "_foreach_") for end in ("", "_")):
    if _fn := getattr(torch, _name, None):
        call(_fn)(function_row(_fn))
