"""Functions of NumPy that give views of arrays, and those that join and split arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...arrays import numpy
from ..plain.sequence import ListValue, SequenceValue, TupleValue
from ..protocol.calls import method
from ..protocol.constant import fold_plain
from .arguments import axes_of, known, one_axis, sizes_of
from .array import ArrayValue
from .breaks import refuse
from .nodes import call
from .operands import as_array, joined, stacked
from .reductions import sum_
from .table import function, function_row
from .views import SpecialView, permuted, viewed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..protocol.value import Frame, Value
    from .arguments import Argument


def no_flips(frame: Frame, name: str, a: ArrayValue) -> None:
    if a.flips:
        refuse(frame, f"numpy.{name} of an array with negative strides")


@function("reshape", complex=True)
def reshape(frame: Frame, a: Value, shape: Argument) -> Value:
    a = as_array(frame, a)
    no_flips(frame, "reshape", a)
    sizes = sizes_of(frame, shape)
    made = call(frame, torch.reshape, a.memory, sizes)
    if made.example.storage is a.memory.example.storage:
        return viewed(frame, a, made)
    copy = ArrayValue(call(frame, torch.clone, a.memory, memory_format=torch.contiguous_format))
    return viewed(frame, copy, call(frame, torch.reshape, copy.memory, sizes))  # NumPy's is a view of a copy, too


def reshape_method(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, *shape = args
    if kwargs or not shape:
        return refuse(frame, "reshape with these arguments")
    return reshape(frame, a, shape[0] if len(shape) == 1 else TupleValue(shape))


method(numpy.ndarray, "reshape")(reshape_method)


@function("ravel", method="ravel", complex=True)
def ravel(frame: Frame, a: Value) -> Value:
    a = as_array(frame, a)
    if a.flips or not a.example.is_contiguous():
        return flatten(frame, a)
    return viewed(frame, a, call(frame, torch.reshape, a.memory, (-1,)))


def flatten(frame: Frame, a: ArrayValue) -> ArrayValue:
    return ArrayValue(call(frame, torch.clone, call(frame, torch.reshape, a.tensor, (-1,))))


method(numpy.ndarray, "flatten")(function_row(flatten, None, "flatten"))


@function("transpose", "permute_dims", complex=True)
def transpose(frame: Frame, a: Value, axes: Argument = None) -> Value:
    a = as_array(frame, a)
    dims = axes_of(frame, TupleValue(axes.all_items(frame)) if isinstance(axes, ListValue) else axes, a.example.ndim)
    dims = tuple(reversed(range(a.example.ndim))) if dims is None else dims
    if sorted(dims) != list(range(a.example.ndim)):
        return refuse(frame, f"axes {dims} of an array of {a.example.ndim} dims")
    return permuted(frame, a, dims)


def transpose_method(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, *axes = args
    if kwargs:
        return refuse(frame, "transpose with these arguments")
    if not axes:
        return transpose(frame, a)
    return transpose(frame, a, axes[0] if len(axes) == 1 else TupleValue(axes))


method(numpy.ndarray, "transpose")(transpose_method)


@function("swapaxes", method="swapaxes", complex=True)
def swapaxes(frame: Frame, a: Value, axis1: Value, axis2: Value) -> Value:
    a = as_array(frame, a)
    first, second = (one_axis(frame, axis, a.example.ndim) for axis in (axis1, axis2))
    dims = list(range(a.example.ndim))
    dims[first], dims[second] = second, first
    return permuted(frame, a, dims)


@function("moveaxis", complex=True)
def moveaxis(frame: Frame, a: Value, source: Value, destination: Value) -> Value:
    a = as_array(frame, a)
    old, new = (axes_of(frame, axis, a.example.ndim) for axis in (source, destination))
    if old is None or new is None or len(set(old)) != len(old) or len(set(new)) != len(new) or len(old) != len(new):
        return refuse(frame, f"numpy.moveaxis of {old} to {new}")
    dims = [d for d in range(a.example.ndim) if d not in old]
    for place, dim in sorted(zip(new, old, strict=True)):
        dims.insert(place, dim)
    return permuted(frame, a, dims)


@function("expand_dims", complex=True)
def expand_dims(frame: Frame, a: Value, axis: Argument) -> ArrayValue:
    a = as_array(frame, a)
    axis = known(frame, axis)
    count = a.example.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1)
    new = axes_of(frame, tuple(axis) if isinstance(axis, list) else axis, count)
    if new is None or len(set(new)) != len(new):
        return refuse(frame, f"numpy.expand_dims at {axis}")
    found, old = a.memory, iter(range(a.example.ndim))
    for place in sorted(new):
        found = call(frame, torch.unsqueeze, found, place)
    return viewed(frame, a, found, [None if place in new else next(old) for place in range(count)])


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


for _dims in (1, 2):

    def handler(frame: Frame, *arys: Value, dims: int = _dims) -> Value:
        found = [at_least(frame, a, dims) for a in arys]
        return found[0] if len(found) == 1 else TupleValue(found)

    function(f"atleast_{_dims}d", complex=True)(handler)


def at_least(frame: Frame, value: Value, dims: int) -> ArrayValue:
    """atleast_1d, atleast_2d"""
    a = as_array(frame, value)
    shape = (1,) * (dims - a.example.ndim)
    for _ in shape:
        a = expand_dims(frame, a, 0)
    return a


@function("vstack", "row_stack", complex=True)
def vstack(frame: Frame, tup: Value) -> Value:
    return joined(frame, torch.cat, "vstack", TupleValue([at_least(frame, v, 2) for v in tup.unpack(frame)]), 0)


@function("hstack", complex=True)
def hstack(frame: Frame, tup: Value) -> Value:
    items = [at_least(frame, v, 1) for v in tup.unpack(frame)]
    return joined(frame, torch.cat, "hstack", TupleValue(items), 0 if items and items[0].example.ndim == 1 else 1)


@function("array_split", complex=True)
def array_split(frame: Frame, ary: Value, indices_or_sections: Value, axis: Argument = 0) -> Value:
    a = as_array(frame, ary)
    no_flips(frame, "array_split", a)
    sections = known(frame, indices_or_sections)
    if not isinstance(sections, int):
        sections = tuple(int(place) for place in sections)
    found = call(frame, torch.tensor_split, a.memory, sections, dim=one_axis(frame, axis, a.example.ndim))
    return ListValue([viewed(frame, a, part) for part in found.unpack(frame)])


@function("split", complex=True)
def split(frame: Frame, ary: Value, indices_or_sections: Value, axis: Argument = 0) -> Value:
    a, sections = as_array(frame, ary), known(frame, indices_or_sections)
    if isinstance(sections, int) and (sections < 1 or a.example.shape[one_axis(frame, axis, a.example.ndim)] % sections):
        return refuse(frame, "an array split into parts that are not equal")
    return array_split(frame, a, indices_or_sections, axis)


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


@function("trace", method="trace", complex=True)
def trace(
    frame: Frame, a: Value, offset: Argument = 0, axis1: Argument = 0, axis2: Argument = 1, dtype: Argument = None
) -> Value:
    return sum_(frame, diagonal(frame, a, offset, axis1, axis2), -1, dtype)


def flipped(frame: Frame, a: ArrayValue, dims: Iterable[int]) -> ArrayValue:
    """The view whose items in these dims come the other way round."""
    return SpecialView(frame, a.memory, a.flips ^ frozenset(dims), a.writeable, a)


@function("rot90", complex=True)
def rot90(frame: Frame, m: Value, k: Argument = 1, axes: Argument = (0, 1)) -> Value:
    m, turns = as_array(frame, m), known(frame, k)
    pair = axes_of(frame, tuple(known(frame, axes)), m.example.ndim) or ()
    if len(pair) != 2 or pair[0] == pair[1] or not isinstance(turns, int):
        return refuse(frame, "numpy.rot90 with these arguments")
    if turns % 4 in (0, 2):
        return flipped(frame, m, pair if turns % 4 else ())
    dims = list(range(m.example.ndim))
    dims[pair[0]], dims[pair[1]] = pair[1], pair[0]
    if turns % 4 == 1:
        return permuted(frame, flipped(frame, m, pair[1:]), dims)
    return flipped(frame, permuted(frame, m, dims), pair[1:])


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
