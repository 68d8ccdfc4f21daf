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
    if defines(cls, "__del__"):
        frame.break_graph("call_unknown", f"construction of {cls.__name__}, whose __del__ runs when it dies")
    if issubclass(cls, REFUSED):
        frame.break_graph("call_unknown", f"construction of {cls.__name__}")
    new = cls.__new__
    if isinstance(new, types.BuiltinFunctionType) and new.__self__ not in ALLOWED_NATIVE:
        frame.break_graph("call_unknown", f"construction of {cls.__module__}.{cls.__name__}")
    for base in cls.__mro__:
        if not (base.__flags__ & HEAP_TYPE) and base not in ALLOWED_NATIVE:
            frame.break_graph("call_unknown", f"construction of {cls.__module__}.{cls.__name__}")
