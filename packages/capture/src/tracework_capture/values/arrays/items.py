"""Items of arrays, by keys of any kind: array[key], array[key] = value."""

from __future__ import annotations

import operator
from typing import Any

import torch

from ...arrays import numpy
from ..number.symint import SymNumber
from ..plain.ranges import SliceValue
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from ..torch.tensor import TensorValue
from .array import OPERATIONS, ArrayValue
from .breaks import refuse
from .layouts import axis_order, ordered, strides_in
from .nodes import call, call_method
from .operands import as_array, cast, to_store
from .views import SpecialView, view_of


def index(frame: Frame, array: ArrayValue, key: Value) -> tuple[Any, ...]:
    """The key of an array as a tuple of parts that mean the same for a tensor."""
    parts = key.all_items(frame) if isinstance(key, TupleValue) else [key]
    keys = tuple(index_part(frame, part) for part in parts)
    advanced = [i for i, k in enumerate(keys) if isinstance(k, (TensorValue, SymNumber, int))]
    arrays = any(isinstance(k, TensorValue) for k in keys)
    if arrays and not all(isinstance(keys[i], TensorValue) for i in advanced):
        if advanced[-1] - advanced[0] + 1 != len(advanced):
            return refuse(frame, "integers and arrays as indices with a slice between them")
    return keys


def index_part(frame: Frame, part: Any) -> Any:
    """None, an int, a slice, an ellipsis, or a tensor of indices or of booleans."""
    if isinstance(part, SliceValue):
        return part
    if isinstance(part, SymNumber):
        return part
    if isinstance(part, ArrayValue) or isinstance(part, SequenceValue):
        found = as_array(frame, part).tensor
        if found.example.dtype is torch.bool:
            return found if found.example.ndim else refuse(frame, "a single boolean as an index")
        if found.example.dtype.is_floating_point or found.example.numel() == 0:
            return refuse(frame, "indices that are no integers")
        return cast(frame, found, numpy.dtype("int64"))
    known = force_plain(frame, part)
    if known is None or known is Ellipsis:
        return known
    if isinstance(known, bool) or not hasattr(type(known), "__index__"):
        return refuse(frame, f"the index {known!r}")
    return int(known)


def is_element(keys: tuple[Any, ...], ndim: int) -> bool:
    """Whether the key names one item, which NumPy gives as a number."""
    return len(keys) == ndim and all(isinstance(k, (int, SymNumber)) for k in keys)


def runs_backwards(part: Value) -> bool:
    """Whether a part of a key is a slice with a negative step."""
    return isinstance(part, SliceValue) and part.parts[2].is_constant() and type(s := part.parts[2].constant()) is int and s < 0


def item(frame: Frame, array: ArrayValue, key: Value) -> ArrayValue:
    """array[key]"""
    parts = key.all_items(frame) if isinstance(key, TupleValue) else [key]
    keys = index(frame, array, key)
    if any(isinstance(k, TensorValue) for k in keys):
        if any(map(runs_backwards, parts)):
            return refuse(frame, "indices that are arrays beside slices with negative steps")
        return advanced_item(frame, array, keys)
    if not array.flips and not any(map(runs_backwards, parts)):
        found = call(frame, operator.getitem, array.memory, keys)
        if is_element(keys, array.example.ndim):
            return ArrayValue(call_method(frame, "clone", found), scalar=True)
        return view_of(frame, array, found)
    places, flips = in_memory(frame, array, keys)
    found = call(frame, operator.getitem, array.memory, places)
    if is_element(keys, array.example.ndim):
        return ArrayValue(call_method(frame, "clone", found), scalar=True)
    return view_of(frame, array, found, flips)


def advanced_item(frame: Frame, array: ArrayValue, keys: tuple[Any, ...]) -> ArrayValue:
    """An item by arrays of indices, which is a copy."""
    found = call(frame, operator.getitem, array.tensor, keys)
    single = [k for k in keys if isinstance(k, TensorValue) and k.example.ndim == 0]
    if single and found.example.ndim == 0:
        return ArrayValue(call_method(frame, "clone", found), scalar=True)
    if single:
        return refuse(frame, "a view whose place is not known")
    if found.example.ndim < 2:
        return ArrayValue(found, scalar=found.example.ndim == 0)
    before, outer, order = taken_order(array, keys)
    made = ordered(frame, found, order)
    if not before:
        return ArrayValue(made)
    front = (*range(before, before + outer), *range(before), *range(before + outer, made.example.ndim))
    held = call(frame, torch.permute, made, front)  # NumPy makes that and gives a view of it
    return view_of(frame, ArrayValue(held), made)


def taken_order(array: ArrayValue, keys: tuple[Any, ...]) -> tuple[int, int, tuple[int, ...]]:
    """Of what arrays of indices take: how many dims come before those of the indices, how many these are, and the order of all in
    memory, in which these are outermost."""
    parts, dim = whole(keys, array.example.ndim), 0
    steps: list[int | None] = []
    for part in parts:
        if isinstance(part, TensorValue) or isinstance(part, (int, SymNumber)):
            steps.append(None)
        else:
            steps.append(0 if part is None else abs(array.memory.example.stride(dim) * step_of(part)))
        dim += dims_of(part)
    indices = [k.example for k in keys if isinstance(k, TensorValue)]
    outer = max(1 if is_mask(k) else k.example.ndim for k in keys if isinstance(k, TensorValue))
    strides = [strides_in(e, outer) for e in indices if e.dtype is not torch.bool]
    first = steps.index(None)
    chosen = [place for place, step in enumerate(steps) if step is None]
    before = first if chosen[-1] - first + 1 == len(chosen) else 0
    left = sorted(((place, step) for place, step in enumerate(step for step in steps if step is not None)), key=lambda s: -s[1])
    places = [place if place < before else place + outer for place, _ in left]
    return before, outer, (*(before + d for d in (range(outer) if left else axis_order(strides, outer))), *places)


def dims_of(part: Any) -> int:
    """Of how many dims a part of a key takes items."""
    if part is None or part is Ellipsis:
        return 0
    return part.example.ndim if is_mask(part) else 1


def is_mask(part: Any) -> bool:
    """Whether a part of a key is an array of booleans."""
    return isinstance(part, TensorValue) and part.example.dtype is torch.bool


def step_of(part: SliceValue) -> int:
    """The step of a slice, 1 where it is not known."""
    step = part.parts[2].constant() if part.parts[2].is_constant() else None
    return step if type(step) is int else 1


def whole(keys: tuple[Any, ...], ndim: int) -> list[Any]:
    """The parts of a key with as many slices as it leaves out."""
    missing = ndim - sum(dims_of(k) for k in keys)
    everything = SliceValue(*[ConstantValue(None)] * 3)
    if Ellipsis not in [k for k in keys if not isinstance(k, (SymNumber, SliceValue))]:
        keys = (*keys, Ellipsis)
    found = []
    for k in keys:
        found += [everything] * missing if k is Ellipsis else [k]
    return found


def in_memory(frame: Frame, array: ArrayValue, keys: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """(the key that finds the same items in the memory, the dims of the result that run backwards there)"""
    places: list[Any] = []
    flips: list[int] = []
    dim = new = 0
    for key in whole(keys, array.example.ndim):
        if key is None:
            places.append(None)
            new += 1
            continue
        if isinstance(key, SliceValue):
            place, backwards = slice_in_memory(frame, array, dim, key)
            places.append(place)
            flips += [new] if backwards else []
            new += 1
        else:
            places.append(opposite(frame, key) if dim in array.flips else key)
        dim += 1
    return tuple(places), flips


def opposite(frame: Frame, place: Any) -> Any:
    """The index from the other end."""
    return ConstantValue(-1).binary(frame, "-", place) if isinstance(place, SymNumber) else -1 - place


def slice_in_memory(frame: Frame, array: ArrayValue, dim: int, key: SliceValue) -> tuple[slice, bool]:
    """(a slice with a positive step, whether its items come the other way round)"""
    backwards, bounds = dim in array.flips, [force_plain(frame, p) for p in key.parts]
    if bounds[:2] == [None, None] and bounds[2] in (None, 1, -1):
        return slice(None), backwards != (bounds[2] == -1)
    size = int(array.example.shape[dim])
    taken = range(size)[:: -1 if backwards else 1][slice(*bounds)]
    if not taken:
        return slice(0, 0), taken.step < 0
    if taken.step > 0:
        return slice(taken[0], taken[-1] + 1, taken.step), False
    return slice(taken[-1], taken[0] + 1, -taken.step), True


def set_item(frame: Frame, array: ArrayValue, key: Value, source: AbstractTensor) -> None:
    """array[key] = source, a tensor of its dtype; of arrays with dims that run backwards, or such a key."""
    keys = index(frame, array, key)
    if any(isinstance(k, TensorValue) for k in keys):
        refuse(frame, "items by arrays of indices or of booleans in a view with negative strides")
    places, flips = in_memory(frame, array, keys)
    if is_element(keys, array.example.ndim):
        call(frame, operator.setitem, array.memory, places, source)
        return
    found = call(frame, operator.getitem, array.memory, places)
    SpecialView(frame, found, flips, array.writeable, array).write(frame, source)


def is_special_place(frame: Frame, array: ArrayValue, key: Value) -> bool:
    """Whether set_item is what stores there."""
    parts = key.all_items(frame) if isinstance(key, TupleValue) else [key]
    return bool(array.flips) or any(map(runs_backwards, parts))


def store(frame: Frame, array: ArrayValue, key: Value, value: Value) -> None:
    """array[key] = value"""
    if array.scalar or not array.writeable:
        refuse(frame, "an item of a number, or of an array that is read-only, is set")
    keys = index(frame, array, key)
    if any(isinstance(k, TensorValue) and k.example.dtype is not torch.bool for k in keys):
        refuse(frame, "items set by an array of indices, of which the last one counts")
    source = to_store(frame, array, value)
    if is_special_place(frame, array, key):
        set_item(frame, array, key, source)
    else:
        call(frame, operator.setitem, array.tensor, keys, source)


OPERATIONS["item"] = item
OPERATIONS["set_item"] = store
