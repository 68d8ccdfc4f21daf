"""Objects that the traced program makes: the values of what tracing computed."""

from __future__ import annotations

import enum
import re
from typing import Any

import numpy
import torch

from ...atoms import ATOM_TYPES
from ...sources import Const
from ..protocol.constant import ConstantValue
from ..protocol.make import make
from ..protocol.value import Frame, Value
from .mapping import dict_of
from .ranges import RangeValue, SliceValue
from .sequence import ListValue, TupleValue, is_record

FOUND_ONE_BY_ONE = type(re.finditer("", ""))


def wrap_constant(frame: Frame, obj: Any) -> Value:
    """The value of an object that tracing produced; containers are new ones."""
    kind = type(obj)
    if kind is FOUND_ONE_BY_ONE:  # of a function that depends on its arguments alone: when it is asked makes no difference
        return ListValue([wrap_constant(frame, found) for found in obj]).iterate(frame)
    if hasattr(kind, "__next__"):
        frame.break_graph("iterator_unsupported", f"a new {kind.__name__}: it can be used only once")
    if kind in ATOM_TYPES:
        return ConstantValue(obj)
    if kind is tuple:
        return TupleValue([wrap_constant(frame, i) for i in obj])
    if kind is list:
        return ListValue([wrap_constant(frame, i) for i in obj])
    if kind is dict:
        return dict_of(frame, [(wrap_constant(frame, k), wrap_constant(frame, v)) for k, v in obj.items()])
    if kind is torch.Size or is_record(kind) and not issubclass(kind, enum.Enum):
        return TupleValue([wrap_constant(frame, i) for i in obj], cls=kind)
    if kind is slice:
        return SliceValue(*(wrap_constant(frame, getattr(obj, n)) for n in ("start", "stop", "step")))
    if kind is range:
        return RangeValue(obj)
    if kind is numpy.ndarray:
        return make.array(frame, obj)
    return frame.wrap(obj, Const(obj))


make.provide(result=wrap_constant)
