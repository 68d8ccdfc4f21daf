"""Operators whose number argument (alpha, value) is a tensor: eager reads the number out of it, which a graph cannot.

The same arithmetic is done without that argument. What else is given breaks the graph, as reading the number does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._torch.functions import present
from ...polyfills.torch_numbers import EXACT, WIDE
from ..number.floats import FloatValue
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import Handler, call, method
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor, tensor_value
from ..protocol.value import Frame, Value
from .call import call_torch, returned_list, writes_to_lists
from .dtypes import as_kind, fits


def computed_in(tensors: Sequence[Any]) -> tuple[torch.dtype, torch.dtype] | None:
    """The dtype in which eager computes with these, and their common one, to which it rounds halves once; None where that is not exact.
    Without dimensions they are of one dtype, as the number is then."""
    if not all(isinstance(t, AbstractTensor) for t in tensors):
        return None
    dtypes = {t.example.dtype for t in tensors}
    if len(dtypes) > 1 and not all(t.example.ndim > 0 for t in tensors):
        return None
    common = functools.reduce(torch.promote_types, dtypes)
    wide = WIDE.get(common, common)
    return (wide, common) if wide in EXACT else None


NUMBERS = {
    "add": ("alpha", 1),
    **dict.fromkeys(("sub", "subtract"), ("alpha", 1)),
    **dict.fromkeys(("addcmul", "addcdiv"), ("value", 2)),
}
"""Name -> (the number's keyword, how many tensors come after the first)."""


def without_number(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of the form without a number argument, or None when the number is a number, or the form would round otherwise."""
    of_lists = name.startswith("_foreach_")
    keyword, count = NUMBERS[name.removeprefix("_foreach_").rstrip("_")]
    given = kwargs.get("scalars", kwargs.get(keyword, args[count + 1] if len(args) > count + 1 else None))
    if given is None or "out" in kwargs or len(args) <= count or given.is_constant():
        return None
    columns = [a.unpack(frame) if of_lists else [a] for a in args[: count + 1]]
    rows = list(zip(*columns))
    dtypes: list[Any] = [computed_in(row) for row in rows]
    numbers = None if None in dtypes else tensors_of(frame, given, dtypes, of_lists)
    if numbers is None or any(len(column) != len(numbers) for column in columns):
        return None
    made = [accumulate(frame, name, *each) for each in zip(dtypes, numbers, rows)]
    if of_lists:
        return returned_list(args, {}) if writes_to_lists(name) else TupleValue(made)
    return made[0]


def tensors_of(frame: Frame, given: Value, dtypes: list[Any], of_lists: bool) -> list[Any] | None:
    """The number, or numbers, of each row, which eager computes with in these dtypes, as tensors; None where it is a number, or refused."""
    if isinstance(given, AbstractTensor):
        single = not given.example.ndim or not of_lists and given.example.numel() == 1
        if single or of_lists:
            return [given if single else given.getitem(frame, ConstantValue(index)) for index in range(len(dtypes))]
    elif isinstance(given, FloatValue):
        if all(fits(frame, given, torch.finfo(dtype).max) for dtype, _ in set(dtypes)):
            return [given.as_tensor(frame)] * len(dtypes)
    elif isinstance(given, SequenceValue) and of_lists:
        items = given.unpack(frame)
        if any(isinstance(i, FloatValue) and not i.known for i in items) and all(i.python_type() is float for i in items):
            known = {"dtype": torch.float64}
            return [
                i.as_tensor(frame) if isinstance(i, FloatValue) else frame.graph.call(frame, torch.full, ((), i), known)
                for i in items
            ]
    return None


def accumulate(frame: Frame, name: str, dtypes: tuple[torch.dtype, torch.dtype], number: Any, row: Sequence[Any]) -> Value:
    """The same arithmetic of one row without the argument, in eager's order of operations. The number takes no part in promotion, which among
    tensors without dimensions it would."""
    (wide, common), in_place, call = dtypes, name.endswith("_"), frame.graph.call
    if not number.example.dtype.is_complex and not all(t.example.ndim for t in row):
        number = as_kind(frame, number, row[0].example.dtype)
    rounds = common in WIDE and not in_place
    target = as_kind(frame, row[0], wide) if rounds else row[0]
    first, *second = (as_kind(frame, t, wide) for t in row[1:])
    if second:
        change = call(frame, torch.mul if "mul" in name else torch.div, (call(frame, torch.mul, (number, first)), *second))
    else:
        change = call(frame, torch.mul, (first, number.unary(frame, "-") if "sub" in name else number))
    found = frame.graph.call_method(frame, "add_" if in_place else "add", (target, change))
    return target if in_place else as_kind(frame, tensor_value(found), common) if rounds else found


def with_operand(frame: Frame, args: list[Value]) -> list[Value]:
    """The arguments of tensor arithmetic with a float that changes in second place replaced by a tensor."""
    if len(args) < 2 or not isinstance(args[0], AbstractTensor) or not isinstance(args[1], FloatValue) or args[1].known:
        return args
    return [args[0], args[1].as_operand(frame, [args[0]]), *args[2:]]


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


for _fn in present(torch, (prefix + n + end for n in OPERATORS for prefix in ("", "_foreach_") for end in ("", "_"))).values():
    call(_fn)(function_row(_fn))
