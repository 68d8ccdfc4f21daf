"""Operators whose number argument (alpha, value) is a tensor: eager reads the number out of it, which a graph cannot.

polyfills/torch_numbers.py has the same arithmetic without that argument. What else is given breaks the graph, as reading the number does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch

from ...polyfills.torch_numbers import EXACT, WIDE, accumulated
from ..number.floats import FloatValue
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import Handler, call, method, traced
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .call import call_torch, returned_list, writes_to_lists
from .dtypes import fits

accumulate = traced(accumulated)


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


NUMBERS = {
    "add": ("alpha", 1),
    **dict.fromkeys(("sub", "subtract"), ("alpha", 1)),
    **dict.fromkeys(("addcmul", "addcdiv"), ("value", 2)),
}
"""Name -> (the number's keyword, how many tensors come after the first)."""


def without_number(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of the form without a number argument, or None when the number is a number, or the form would round otherwise."""
    keyword, count = NUMBERS[name.removeprefix("_foreach_").rstrip("_")]
    number: Any = kwargs.get(keyword)
    if number is None and len(args) > count + 1:
        number = args[count + 1]
    if "scalars" in kwargs:
        number = kwargs["scalars"]
    if isinstance(number, FloatValue) and not number.known and may_be_tensor(frame, number, args[: count + 1]):
        number = number.as_tensor(frame)
    factors: list[Any] | None = (
        unspecialised_numbers(frame, number) if name.startswith("_foreach_") and len(args) >= count + 1 else None
    )
    if factors is not None:
        return each_without_number(frame, name, args, count, factors)
    if not isinstance(number, AbstractTensor) or "out" in kwargs or len(args) < count + 1:
        return None
    if name.startswith("_foreach_"):
        rows = len(args[0].unpack(frame))
        single = number.example.ndim == 0
        factors = [number if single else number.getitem(frame, ConstantValue(index)) for index in range(rows)]
        return each_without_number(frame, name, args, count, factors)
    if computed_in(args[: count + 1]) is None or number.example.numel() != 1:
        return None
    return accumulate(frame, [ConstantValue(name), number, *args[: count + 1]], {})


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


def each_without_number(frame: Frame, name: str, args: list[Value], count: int, factors: list[AbstractTensor]) -> Value | None:
    """The same for lists of tensors, with a number for each of them."""
    columns = [a.unpack(frame) for a in args[: count + 1]]
    if not all(map(computed_in, zip(*columns))) or any(len(column) != len(factors) for column in columns):
        return None
    made = [accumulate(frame, [ConstantValue(name), factor, *row], {}) for row, factor in zip(zip(*columns), factors)]
    return returned_list(args, {}) if writes_to_lists(name) else TupleValue(made)


def method_row(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.add and its like."""
    found = without_number(frame, name, [self, *args], kwargs) if name.rstrip("_") in NUMBERS else None
    if found is not None:
        return found
    found = frame.graph.call_method(frame, name, with_operand(frame, [self, *args]), kwargs)
    return self if name.endswith("_") else found


OPERATORS = ("mul", "div", *NUMBERS)
method(torch.Tensor, *(n + end for n in OPERATORS for end in ("", "_")))(method_row)


def function_row(fn: Callable[..., Any]) -> Handler:
    """torch.add, torch._foreach_add_ and their like."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        name = fn.__name__
        found = without_number(frame, name, args, kwargs) if name.removeprefix("_foreach_").rstrip("_") in NUMBERS else None
        return found if found is not None else call_torch(frame, fn, with_operand(frame, list(args)), kwargs)

    return row


for _name in (prefix + n + end for n in OPERATORS for prefix in ("", "_foreach_") for end in ("", "_")):
    if _fn := getattr(torch, _name, None):
        call(_fn)(function_row(_fn))
