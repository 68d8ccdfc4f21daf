"""NumPy's functions that write to chosen places of an array. Of several values for one place NumPy keeps the last, which a graph does where the
places are known, or where each is written once."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from ...arrays import numpy
from ..plain.sequence import NONE, ListValue, SequenceValue, TupleValue
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .arguments import Argument, known, one_axis
from .array import ArrayValue
from .breaks import refuse
from .nodes import call
from .operands import as_array, cast, to_store
from .table import function


def target(frame: Frame, name: str, a: Value) -> ArrayValue:
    """The array that is written to."""
    if not isinstance(a, ArrayValue) or a.scalar or a.flips or not a.writeable:
        return refuse(frame, f"numpy.{name} of a number, or of an array that is read-only or has negative strides")
    return a


def source_of(frame: Frame, a: ArrayValue, values: Value) -> AbstractTensor:
    """What is written, as a tensor of the array's dtype."""
    return to_store(frame, a, as_array(frame, values) if isinstance(values, SequenceValue) else values)


@function(method="put", pure=False)
def put(frame: Frame, a: Value, indices: Value, values: Value, mode: Argument = "raise") -> Value:
    a = target(frame, "put", a)
    places = known(frame, indices)
    count = a.example.numel()
    places = places if isinstance(places, (tuple, list)) else (places,)
    if known(frame, mode) != "raise" or type(count) is not int or not all(type(p) is int and -count <= p < count for p in places):
        return refuse(frame, "numpy.put in another mode, or at places out of range")
    source = source_of(frame, a, values)
    length = source.example.numel()
    if not a.example.is_contiguous() or type(length) is not int or not length:
        return refuse(frame, "numpy.put of no values, or into an array that is not in C order")
    last = {place % count: number % length for number, place in enumerate(places)}
    if last:
        flat = call(frame, torch.reshape, a.memory, (-1,))
        taken = call(frame, operator.getitem, call(frame, torch.reshape, source, (-1,)), TupleValue([numbers(last.values())]))
        call(frame, operator.setitem, flat, TupleValue([numbers(last)]), taken)
    return NONE


def numbers(values: Iterable[int]) -> Value:
    return ListValue([ConstantValue(value) for value in values])


@function("put_along_axis", pure=False)
def put_along_axis(frame: Frame, arr: Value, indices: Value, values: Value, axis: Argument) -> Value:
    a, places = target(frame, "put_along_axis", arr), as_array(frame, indices)
    dim, sizes, shape = one_axis(frame, axis, a.example.ndim), tuple(a.example.shape), tuple(places.example.shape)
    fits = len(shape) == len(sizes) and all(n in (1, m) for d, (n, m) in enumerate(zip(shape, sizes)) if d != dim)
    if places.dtype.kind not in "iu" or not fits or shape[dim] != 1 or not all(type(n) is int for n in sizes):
        return refuse(frame, "numpy.put_along_axis with several places along the axis, of which the last one counts")
    chosen = cast(frame, places.tensor, numpy.dtype("int64"))
    keys = [chosen if d == dim else every(frame, n, d, len(sizes)) for d, n in enumerate(sizes)]
    call(frame, operator.setitem, a.tensor, TupleValue(keys), source_of(frame, a, values))
    return NONE


def every(frame: Frame, size: Any, dim: int, dims: int) -> AbstractTensor:
    """All indices of a dim, along it."""
    return call(frame, torch.reshape, call(frame, torch.arange, size), tuple(size if d == dim else 1 for d in range(dims)))
