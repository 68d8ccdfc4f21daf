"""Texts of tensors and of NumPy's arrays and numbers: written when the graph has run, of what these hold where the program asks for them.

What needs the text while tracing captures the frame again, and the graph then breaks where the program asked (values/number/late_values.py).
"""

from __future__ import annotations

from types import FunctionType

import torch

from ...guards.classes import lookup_class
from ...signals import let_through
from ..number.late_values import OF_KIND, LateValue, copy_for_later, place_here
from ..objects.instance import ObjectValue
from ..plain.mapping import DictValue
from ..plain.sequence import SequenceValue
from ..protocol.kinds import AbstractArray, AbstractTensor, is_plain_tensor
from ..protocol.value import Value
from .tensor import number_row

__all__ = ["converted", "format_of_number", "number_for", "text_of_data"]

OF_DTYPE_KIND = {"f": OF_KIND[float], "b": OF_KIND[bool], "i": (-1, 0, 1), "u": (0, 1)}
"""Kind of NumPy's dtypes -> numbers that a format takes where it takes any."""


def text_of_data(frame, value: Value, fn, *rest) -> Value | None:
    """fn(value, *rest) for str, repr or format, which must not raise; None where the text is not known, or may show something else then: the
    name of the function whose result a tensor is, what a mode or a subclass makes of it."""
    root, place = frame.root, place_here(frame)
    switched = root.transforms or root.selecting or root.function_modes or root.subclass_functions_off or root.states_written
    if switched or place in root.history.asked_early:
        return None
    if isinstance(value, AbstractArray) and value.is_plain:
        kept = value.copied(frame)
        load = lambda emit: emit.load(kept)
    elif is_plain(value):
        load = copy_for_later(frame, value)
    else:
        return None
    more = "".join(f", {part!r}" for part in rest)
    write = root.services.call_disabled(fn)  # torch's code that makes a text is no part of the program
    return LateValue(str, lambda emit: f"{emit.const(write, fn.__name__)}({load(emit)}{more})", frozenset((place,)))


def is_plain(value: Value) -> bool:
    """Whether it is a tensor whose text shows what is in it, and nothing of a gradient."""
    if not is_plain_tensor(value) or value.python_type() is not torch.Tensor or value.example.requires_grad:
        return False
    return value.example.layout is torch.strided and value.example.device.type != "meta"


def format_of_number(frame, value: AbstractArray, spec: str) -> Value | None:
    """format(value, spec) of a number of NumPy."""
    takes = takes_format(value.dtype.type, OF_DTYPE_KIND.get(value.dtype.kind, ()), spec)
    return text_of_data(frame, value, format, spec) if takes else None


def takes_format(kind, numbers, spec: str) -> bool:
    """Whether numbers of this class can be written so."""
    try:
        return bool(numbers) and all(type(format(kind(number), spec)) is str for number in numbers)
    except Exception as error:
        let_through(error)
        return False


def number_for(frame, value: Value) -> Value:
    """The number of a tensor without dims, which such a tensor is formatted as."""
    is_number = is_plain_tensor(value) and value.python_type() is torch.Tensor and not value.example.ndim
    if not is_number or frame.root.function_modes or value.example.is_meta:
        return value
    return number_row(frame, frame.graph.compute(frame, torch.detach, (value,)), "item", [], {})


def converted(frame, kind: str | None, value: Value) -> Value:
    """What `%` takes a tensor or an object for at a conversion of this letter, None where that is not known; other values as they are."""
    if isinstance(value, ObjectValue) and kind is not None and not value.is_constant():
        return converted_object(frame, kind, value)
    if kind == "s" and isinstance(value, (AbstractTensor, AbstractArray)):
        return text_of_data(frame, value, str) or value
    if kind == "s" and isinstance(value, (SequenceValue, DictValue)) and not value.is_constant():
        return converted_items(frame, value)
    is_float = kind is not None and kind in "fFeEgG" and is_plain_tensor(value) and not value.example.requires_grad
    if not is_float or not value.example.dtype.is_floating_point or value.example.numel() != 1 or frame.root.function_modes:
        return value
    return number_row(frame, value, "__float__", [], {})


def converted_items(frame, value: Value) -> Value:
    """The text of what a list, tuple or dict holds, for `%s`."""
    from ..plain.rows_containers import shown_items

    return shown_items(frame, value) or value


def converted_object(frame, kind: str, value: ObjectValue) -> Value:
    """The same of an instance of a class: its str(), or its int."""
    from ..plain.rows_containers import str_

    if kind == "s":
        return str_(frame, [value], {})
    names = ("__index__",) if kind in "xXo" else ("__int__", "__index__") if kind in "diu" else ()
    asked = next((name for name in names if isinstance(lookup_class(value.cls, name)[0], FunctionType)), None)
    found = value.special(frame, asked, []) if asked and value.part is None else value
    return found if found.python_type() is int else value
