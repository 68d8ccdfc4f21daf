"""Functions of torch with a number, where that is a float that changes: the forms of polyfills/torch_numbers.py are traced in their places,
and what those ask about numbers is answered here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import torch

from ...polyfills import torch_numbers
from ...polyfills.torch_numbers import FORMS
from ..number.float_formulas import answer, computed_int
from ..number.floats import FloatValue, changes, shown_to_hooks
from ..plain.sequence import SequenceValue
from ..protocol.calls import Handler, calls, traced
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .dtypes import as_kind, fits
from .number_calls import NUMBER_CALLS


def tensor_form(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a function or method of torch by this name where one of its arguments is a float that changes; else None."""
    form, calling = FORMS.get(name), NUMBER_CALLS.get(name)
    given = [*args, *kwargs.values()]
    if name == "gradient" or name.startswith("_foreach_"):  # which take lists of numbers, too
        given += [item for value in given if isinstance(value, SequenceValue) for item in value.unpack(frame)]
    if (form is None and calling is None) or "out" in kwargs or not any(map(changes, given)):
        return None
    largest = largest_number(given)
    if shown_to_hooks(frame) or not all(fits(frame, value, largest) for value in given if changes(value)):
        return None
    if form is None:
        return None if calling is None else calling(frame, name, list(args), dict(kwargs))
    called = [ConstantValue(name), *args]
    if not takes(form, called, kwargs):
        return None
    found = traced(form.function)(frame, called, kwargs)
    return None if found.is_constant() and found.constant() is NotImplemented else found


def takes(form: torch_numbers.Form, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether the form is for these arguments."""
    try:
        given = signature(form.function).bind(*args, **kwargs).arguments
    except TypeError:
        return False
    given |= given.get("options", {})
    tensors = [given.get(name) for name in form.of]
    if not all(isinstance(tensor, AbstractTensor) and tensor.example.dtype in form.dtypes for tensor in tensors):
        return False
    return form.number is None or all(changes(v) == (n == form.number) for n, v in given.items() if isinstance(v, Value))


signature = functools.cache(inspect.signature)


def largest_number(given: list[Value]) -> float:
    """The largest that the tensors, or the dtype, among the arguments hold; eager refuses to store a larger one in them."""
    dtypes = {v.example.dtype if isinstance(v, AbstractTensor) else v.is_constant() and v.constant() for v in given}
    found = {d for d in dtypes if isinstance(d, torch.dtype) and d.is_floating_point} or {torch.get_default_dtype()}
    return min(torch.finfo(dtype).max for dtype in found)


# --- what forms ask ---------------------------------------------------------------------------------------------------------------------


def number_tensor(frame: Frame, number: Value) -> Value:
    return number.as_tensor(frame) if changes(number) else frame.graph.call(frame, torch.full, ((), number))


def number_in_dtype(frame: Frame, number: FloatValue, dtype: Value) -> AbstractTensor:
    return as_kind(frame, number.as_tensor(frame), dtype.constant())


def is_factor(frame: Frame, number: Value) -> Value:
    found = answer(frame, "(isfinite({0}) and {0} != 0)", number) if changes(number) else None
    return ConstantValue(torch_numbers.is_factor(force_plain(frame, number)) if found is None else found)


def count_of(frame: Frame, start: Value, end: Value, step: Value) -> Value:
    return computed_int(frame, "ceil(({} - {}) / {})", end, start, step) or ConstantValue(None)


def element(frame: Frame, value: Value, tensor: AbstractTensor) -> Value:
    """A number that is stored in a tensor."""
    dtype = tensor.example.dtype
    return as_kind(frame, value.as_tensor(frame), dtype) if changes(value) and dtype.is_floating_point else value


def row(answers: Callable[..., Value]) -> Handler:
    """The handler of a question of this signature."""
    return lambda frame, args, kwargs: answers(frame, *args)


calls(
    {
        torch_numbers.changes: row(lambda frame, value: ConstantValue(changes(value))),
        torch_numbers.operand: row(lambda frame, value, tensor: value.as_operand(frame, [tensor]) if changes(value) else value),
        torch_numbers.as_tensor: row(number_tensor),
        torch_numbers.in_dtype: row(number_in_dtype),
        torch_numbers.is_factor: row(is_factor),
        torch_numbers.count_of: row(count_of),
    }
)
