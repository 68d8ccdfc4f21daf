"""Arguments of functions of NumPy: known ones, axes, sizes, dtypes."""

from __future__ import annotations

from typing import Any, TypeAlias

from ...arrays import numpy
from ...graph.constant_data import known_tensor
from ..number.symint import SymNumber
from ..plain.sequence import SequenceValue
from ..protocol.constant import force_plain
from ..protocol.kinds import AbstractArray
from ..protocol.value import Frame, Value
from .breaks import refuse

Argument: TypeAlias = Any
"""A Value, or the plain default of a parameter that was not given."""


def known(frame: Frame, value: Argument) -> Any:
    """The plain object of an argument, given or not; of an array whose data is known its items."""
    data = known_tensor(value.memory.node) if isinstance(value, AbstractArray) and not value.flips else None
    if data is not None:
        return tuple(data.tolist()) if data.ndim == 1 else data.numpy()[()]
    return force_plain(frame, value) if isinstance(value, Value) else value


def axes_of(frame: Frame, axis: Argument, ndim: int) -> tuple[int, ...] | None:
    """Normalised axes, or None for all of them."""
    axis = known(frame, axis)
    if axis is None:
        return None
    found = axis if isinstance(axis, tuple) else (axis,)
    if not all(type(a) is int and -ndim <= a < ndim for a in found):
        return refuse(frame, f"axis {axis} of an array of {ndim} dims")
    return tuple(a % ndim for a in found)


def one_axis(frame: Frame, axis: Argument, ndim: int) -> int:
    found = axes_of(frame, axis, ndim)
    return found[0] if found is not None and len(found) == 1 else refuse(frame, "several axes")


def sizes_of(frame: Frame, shape: Argument) -> tuple[Any, ...]:
    """The argument of a shape: an int, or a sequence of ints; sizes that change stay so."""
    if isinstance(shape, AbstractArray):
        found = known(frame, shape)
        return found if isinstance(found, tuple) else (int(found),)
    parts = shape.all_items(frame) if isinstance(shape, SequenceValue) else [shape]
    return tuple(p if isinstance(p, SymNumber) else int(force_plain(frame, p)) for p in parts)


def dtype_of(frame: Frame, value: Argument) -> numpy.dtype[Any] | None:
    """The dtype that an argument names; None when it was not given."""
    if value is None:
        return None
    known = force_plain(frame, value) if isinstance(value, Value) else value
    try:
        return None if known is None else numpy.dtype(known)
    except TypeError as error:
        return frame.raise_new(TypeError, *error.args)
