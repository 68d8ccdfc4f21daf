"""Classes whose instances cannot be made while tracing."""

from __future__ import annotations

import abc
import types

import torch

from ...guards.classes import HEAP_TYPE, defines
from ..protocol.binding import NATIVE_BASES
from ..protocol.value import Frame

REFUSED = (torch.Tensor, type, types.ModuleType)
ALLOWED_NATIVE = {object, *NATIVE_BASES, abc.ABC}


def refuse_class(frame: Frame, cls: type) -> None:
    """Breaks for classes whose instances have state that only C knows, or notice that they die."""
    what = refusal(cls)
    if what is not None:
        frame.break_graph("call_unknown", f"construction of {what}")


def refusal(cls: type) -> str | None:
    """What a break says of a class whose instances cannot be made while tracing; None for others."""
    if defines(cls, "__del__"):
        return f"{cls.__name__}, whose __del__ runs when it dies"
    if issubclass(cls, REFUSED):
        return cls.__name__
    new = cls.__new__
    of_c = isinstance(new, types.BuiltinFunctionType) and new.__self__ not in ALLOWED_NATIVE
    if of_c or any(not (base.__flags__ & HEAP_TYPE) and base not in ALLOWED_NATIVE for base in cls.__mro__):
        return f"{cls.__module__}.{cls.__name__}"
    return None
