"""Functions of torch with a number, where that is a float that changes: the forms of polyfills/torch_numbers.py are traced in their places,
and what those ask about numbers is answered here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...errors import NotPlain
from ...graph.operators import number_operator
from ...polyfills import torch_numbers
from ...polyfills.torch_numbers import FORMS
from ..number.float_formulas import answer, computed_int
from ..number.floats import FloatValue, changes, shown_to_hooks
from ..plain.sequence import SequenceValue
from ..protocol.calls import Handler, calls, traced
from ..protocol.constant import ConstantValue, force_plain, plain
from ..protocol.kinds import AbstractTensor, is_plain_tensor
from ..protocol.value import Frame, Value
from .dtypes import as_kind, fits


def tensor_form(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a function or method of torch by this name where one of its arguments is a float that changes; else None."""
    form = FORMS.get(name)
    given = [*args, *kwargs.values()]
    if name == "gradient" or name.startswith("_foreach_"):  # which take lists of numbers, too
        given += [item for value in given if isinstance(value, SequenceValue) for item in value.unpack(frame)]
    if (form is None and name not in NUMBER_CALLS) or "out" in kwargs or not any(map(changes, given)):
        return None
    largest = largest_number(given)
    if shown_to_hooks(frame) or not all(fits(frame, value, largest) for value in given if changes(value)):
        return None
    if form is None:
        return read_when_run(frame, name, list(args), dict(kwargs))
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


# --- functions that compute with a float in a way that no function of tensors does bit by bit ----------------------------------------


NUMBER_CALLS = {
    "norm": torch.norm,
    "linalg_norm": torch.linalg.norm,
    "linalg_vector_norm": torch.linalg.vector_norm,
    "logspace": torch.logspace,
    **{name: getattr(torch, name) for name in ("dist", "histc", "cdist", "pdist")},
    "multi_margin_loss": F.multi_margin_loss,
}


AS_USUAL: dict[str, tuple[Any, ...]] = {"device": (None,), "dtype": (None,), "layout": (None, torch.strided)}
AS_USUAL |= {"requires_grad": (None, False), "pin_memory": (None, False)}
"""What an argument is where it says nothing."""


def read_when_run(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The call with its floats read from tensors; None where a gradient is asked for, or something else decides what it gives."""
    kwargs = {k: v for k, v in kwargs.items() if not v.is_constant() or v.constant() not in AS_USUAL.get(k, ())}
    values: list[Any] = [*args, *kwargs.values()]
    places = [place for place, value in enumerate(values) if isinstance(value, AbstractTensor)]
    examples = [values[place].example for place in places]
    if frame.modes.transforms or frame.modes.function_modes or any(torch.is_grad_enabled() and e.requires_grad for e in examples):
        return None
    if any(not is_plain_tensor(values[place]) for place in places) or under_autocast():
        return None
    try:
        known = [None if isinstance(v, AbstractTensor) or changes(v) else plain(v) for v in values]
    except NotPlain:
        return None
    numbers = {place: value.hint for place, value in enumerate(values) if changes(value)}
    if not places and not set(kwargs) <= {"start", "end", "steps", "base", "dtype"}:
        return None
    operator = number_operator(NUMBER_CALLS[name], known, tuple(kwargs), numbers, places)
    return frame.graph.call(frame, operator, (*(values[p] for p in places), *(values[p].as_tensor(frame) for p in numbers)))


def under_autocast() -> bool:
    """Whether the dtype of what functions compute in depends on where they are called."""
    return any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
