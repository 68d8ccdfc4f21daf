"""Functions of NumPy that give views of arrays, and those that join and split arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...arrays import backwards, numpy
from ..plain.sequence import ListValue, SequenceValue, TupleValue
from ..protocol.calls import method
from ..protocol.constant import ConstantValue, fold_plain
from ..protocol.value import Frame, Value
from .arguments import Argument, axes_of, known, one_axis, sizes_of
from .array import ArrayValue
from .breaks import refuse
from .items import item
from .nodes import call
from .operands import as_array, joined, stacked
from .table import function
from .views import SpecialView, permuted, view_of, viewed


def no_flips(frame: Frame, name: str, a: ArrayValue) -> None:
    if a.flips:
        refuse(frame, f"numpy.{name} of an array with negative strides")


@function("reshape", complex=True)
def reshape(frame: Frame, a: Value, shape: Argument) -> Value:
    a, sizes = as_array(frame, a), sizes_of(frame, shape)
    flips = flips_of_reshaped(frame, a, sizes) if a.flips else ()
    if flips is not None:
        made = call(frame, torch.reshape, a.memory, sizes)
        if made.example.storage is a.memory.example.storage:
            return view_of(frame, a, made, flips) if flips else viewed(frame, a, made)
    copy = ArrayValue(call(frame, torch.clone, a.tensor, memory_format=torch.contiguous_format))
    return viewed(frame, copy, call(frame, torch.reshape, copy.memory, sizes))  # NumPy's is a view of a copy, too


def flips_of_reshaped(frame: Frame, a: ArrayValue, sizes: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The dims that run backwards in the view of these sizes of an array with such dims; None where it is a copy."""
    shape, steps = tuple(a.example.shape), a.strides()
    if any(type(n) is not int for n in (*shape, *steps, *sizes)):
        return refuse(frame, "numpy.reshape of an array with negative strides and open sizes")
    ends = [(n - 1) * step for n, step in zip(shape, steps, strict=True)]
    held = numpy.empty(sum(map(abs, ends)) + 1, numpy.int8)
    like = numpy.ndarray(shape, numpy.int8, held, -sum(end for end in ends if end < 0), steps)
    made = fold_plain(frame, like.reshape, sizes)
    return backwards(made) if numpy.shares_memory(made, held) else None


@function("ravel", method="ravel", complex=True)
def ravel(frame: Frame, a: Value) -> Value:
    a = as_array(frame, a)
    if a.flips or not a.example.is_contiguous():
        return flatten(frame, a)
    return viewed(frame, a, call(frame, torch.reshape, a.memory, (-1,)))


@function(method="flatten")
def flatten(frame: Frame, a: ArrayValue) -> ArrayValue:
    return ArrayValue(call(frame, torch.clone, call(frame, torch.reshape, a.tensor, (-1,))))


@function("transpose", "permute_dims", complex=True)
def transpose(frame: Frame, a: Value, axes: Argument = None) -> Value:
    a = as_array(frame, a)
    dims = axes_of(frame, TupleValue(axes.all_items(frame)) if isinstance(axes, ListValue) else axes, a.example.ndim)
    dims = tuple(reversed(range(a.example.ndim))) if dims is None else dims
    if sorted(dims) != list(range(a.example.ndim)):
        return refuse(frame, f"axes {dims} of an array of {a.example.ndim} dims")
    return permuted(frame, a, dims)


def variadic_method(function: Callable[..., Any], name: str) -> None:
    """The method of a function that takes a tuple, whose numbers may be given as arguments of their own."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, *numbers = args
        if kwargs or not numbers and name == "reshape":
            return refuse(frame, f"{name} with these arguments")
        found: Value = function(frame, a, *([TupleValue(numbers)] if len(numbers) > 1 else numbers))
        return found

    method(numpy.ndarray, name)(row)


variadic_method(reshape, "reshape")
variadic_method(transpose, "transpose")


@function("swapaxes", method="swapaxes", complex=True)
def swapaxes(frame: Frame, a: Value, axis1: Value, axis2: Value) -> Value:
    a = as_array(frame, a)
    first, second = (one_axis(frame, axis, a.example.ndim) for axis in (axis1, axis2))
    dims = list(range(a.example.ndim))
    dims[first], dims[second] = second, first
    return permuted(frame, a, dims)


@function("squeeze", method="squeeze", complex=True)
def squeeze(frame: Frame, a: Value, axis: Argument = None) -> Value:
    a = as_array(frame, a)
    axes = axes_of(frame, axis, a.example.ndim)
    if axes is None:
        axes = tuple(d for d, size in enumerate(a.example.shape) if size == 1)
        if not axes:
            return a
    if any(a.example.shape[d] != 1 for d in axes):
        return refuse(frame, "squeeze of an axis whose size is not one")
    left = [d for d in range(a.example.ndim) if d not in axes]
    return viewed(frame, a, call(frame, torch.squeeze, a.memory, axes), left)


@function("stack", complex=True)
def stack(frame: Frame, arrays: Value, axis: Argument = 0) -> Value:
    return stacked(frame, arrays, axis)


@function("concatenate", "concat", complex=True)
def concatenate(frame: Frame, arrays: Value, axis: Argument = 0) -> Value:
    if known(frame, axis) is None:
        items = arrays.all_items(frame) if isinstance(arrays, SequenceValue) else arrays.unpack(frame)
        arrays, axis = TupleValue([flatten(frame, as_array(frame, v)) for v in items]), 0
    return joined(frame, torch.cat, "concatenate", arrays, axis, 1)


def at_least(frame: Frame, value: Value, dims: int) -> ArrayValue:
    """The array with as many dims, new ones in front."""
    a = as_array(frame, value)
    missing = dims - a.example.ndim
    return item(frame, a, TupleValue([ConstantValue(None)] * missing)) if missing > 0 else a


@function("array_split", complex=True)
def array_split(frame: Frame, ary: Value, indices_or_sections: Value, axis: Argument = 0) -> Value:
    a = as_array(frame, ary)
    no_flips(frame, "array_split", a)
    sections = known(frame, indices_or_sections)
    if not isinstance(sections, int):
        sections = tuple(int(place) for place in sections)
    found = call(frame, torch.tensor_split, a.memory, sections, dim=one_axis(frame, axis, a.example.ndim))
    return ListValue([viewed(frame, a, part) for part in found.unpack(frame)])


@function("broadcast_to", complex=True)
def broadcast_to(frame: Frame, array: Value, shape: Argument) -> Value:
    """Read-only, as in NumPy."""
    return expanded(frame, as_array(frame, array), sizes_of(frame, shape))


def expanded(frame: Frame, a: ArrayValue, sizes: tuple[Any, ...]) -> ArrayValue:
    made = call(frame, torch.Tensor.expand, a.memory, sizes)
    new = made.example.ndim - a.example.ndim
    flips = [dim + new for dim in a.flips]
    return SpecialView(frame, made, flips, False, a)


@function("diagonal", method="diagonal", complex=True)
def diagonal(frame: Frame, a: Value, offset: Argument = 0, axis1: Argument = 0, axis2: Argument = 1) -> Value:
    """Read-only, as in NumPy."""
    a = as_array(frame, a)
    no_flips(frame, "diagonal", a)
    first, second = (one_axis(frame, axis, a.example.ndim) for axis in (axis1, axis2))
    if first == second:
        return refuse(frame, "numpy.diagonal of one axis")
    return SpecialView(frame, call(frame, torch.diagonal, a.memory, known(frame, offset), first, second), (), False, a)


@function("diag", complex=True)
def diag(frame: Frame, v: Value, k: Argument = 0) -> Value:
    v = as_array(frame, v)
    if v.example.ndim == 1:
        return ArrayValue(call(frame, torch.diag, v.tensor, known(frame, k)))
    return diagonal(frame, v, k) if v.example.ndim == 2 else refuse(frame, "numpy.diag of these dims")


@function("broadcast_arrays", complex=True)
def broadcast_arrays(frame: Frame, *args: Value, subok: Argument = False) -> Value:
    """Views that NumPy still lets programs write to, with a warning."""
    arrays = [as_array(frame, a) for a in args]
    sizes = [tuple(a.example.shape) for a in arrays]
    if any(type(n) is not int for s in sizes for n in s):
        return refuse(frame, "numpy.broadcast_arrays of open sizes")
    shape = fold_plain(frame, numpy.broadcast_shapes, *sizes)
    found = [a if s == shape else expanded(frame, a, shape) for a, s in zip(arrays, sizes, strict=True)]
    for a, before in zip(found, arrays, strict=True):
        if isinstance(a, SpecialView) and a is not before and before.writeable:
            a.warns = True
    return TupleValue(found)


@function("diagflat", complex=True)
def diagflat(frame: Frame, v: Value, k: Argument = 0) -> Value:
    return ArrayValue(call(frame, torch.diagflat, as_array(frame, v).tensor, known(frame, k)))
