"""Views of arrays that torch has no tensor for: dims that run backwards (negative strides), memory that nothing may be written to.

Such an array is kept as a tensor over the same memory, in the order of the memory, and what is special about it: computing with it reads
the memory as it is then, writing to it writes there, and what the program gets is NumPy's own view.
"""

from __future__ import annotations

import operator

import torch

from ...arrays import as_view, numpy
from ..number.symint import SymNumber
from ..plain.ranges import SliceValue
from ..plain.sequence import TupleValue
from ..protocol.constant import ConstantValue, force_plain
from ..torch.tensor import TensorValue
from .array import ArrayValue, index, is_element, refuse
from .layouts import axis_order, ordered, strides_in


class SpecialView(ArrayValue):
    """`memory` is a tensor over the memory; `flips` are the dims that run backwards; not all may be written to."""

    is_plain = False

    def __init__(self, frame, memory, flips, writeable, base, source=None):
        super().__init__(memory, source=source, base=base)
        self.frame, self.flips, self.writeable = frame, frozenset(flips), writeable

    warns = False
    """Whether it may be written to, with a warning."""

    @property
    def tensor(self):
        """What it holds now: with dims that run backwards a copy."""
        return turned(self.frame, self.memory, self.flips)

    def shared(self, frame):
        return refuse(frame, f"a tensor over a {self.describe()} with negative strides, or that is read-only")

    def write(self, frame, source):
        if not self.writeable:
            return refuse(frame, "an array that is read-only is written to")
        if self.flips:
            sizes = tuple(self.example.shape)
            source = turned(frame, frame.graph.call_method(frame, "expand", (source, sizes)), self.flips)
        frame.graph.call_method(frame, "copy_", (self.memory, source))

    def reload(self, emit):
        return (
            f"{emit.const(as_view)}({self.over_memory(emit)}, {sorted(self.flips)!r}, {'None' if self.warns else self.writeable})"
        )


def inside_of(frame, made, sizes):
    """What a function made, as a view of an array of these sizes that owns the memory: so NumPy's own code leaves some results."""
    if made.scalar or 0 in sizes:
        return made
    return view_of(frame, ArrayValue(frame.graph.call(frame, torch.reshape, (made.memory, sizes))), made.memory)


def held_sizes(array):
    """The sizes of the array that this one is all of, in other dims or the same; None for others."""
    held = array.base
    if type(held) is not numpy.ndarray or held.dtype != array.dtype or not (held.flags.c_contiguous and array.flags.c_contiguous):
        return None
    return held.shape if held.size == array.size else None


def turned(frame, tensor, dims):
    """The tensor, its items in these dims the other way round."""
    return frame.graph.call(frame, torch.flip, (tensor, tuple(sorted(dims)))) if dims else tensor


def viewed(frame, array, made, dims=None):
    """The array for a tensor over (some of) its memory; dims: of each of its dims, which one of the array it is, None where it is new."""
    flips = [new for new, old in enumerate(dims or ()) if old in array.flips]
    if made.example.storage is not array.memory.example.storage or array.scalar:
        return ArrayValue(made, array.scalar)
    return view_of(frame, array, made, flips)


def view_of(frame, array, made, flips=()):
    """The array for a tensor over (some of) the memory of this one, whose dims `flips` run backwards."""
    if not flips and array.writeable:
        return ArrayValue(made, base=array)
    return SpecialView(frame, made, flips, array.writeable, array)


# --- items ---------------------------------------------------------------------------------------------------------------


def runs_backwards(part):
    """Whether a part of a key is a slice with a negative step."""
    return isinstance(part, SliceValue) and part.parts[2].is_constant() and type(s := part.parts[2].constant()) is int and s < 0


def item(frame, array, key):
    """array[key]"""
    parts = key.all_items(frame) if isinstance(key, TupleValue) else [key]
    keys = index(frame, array, key)
    if any(isinstance(k, TensorValue) for k in keys):
        if any(map(runs_backwards, parts)):
            return refuse(frame, "indices that are arrays beside slices with negative steps")
        return advanced_item(frame, array, keys)
    if not array.flips and not any(map(runs_backwards, parts)):
        found = frame.graph.call(frame, operator.getitem, (array.memory, keys))
        if is_element(keys, array.example.ndim):
            return ArrayValue(frame.graph.call_method(frame, "clone", (found,)), scalar=True)
        return view_of(frame, array, found)
    places, flips = in_memory(frame, array, keys)
    found = frame.graph.call(frame, operator.getitem, (array.memory, places))
    if is_element(keys, array.example.ndim):
        return ArrayValue(frame.graph.call_method(frame, "clone", (found,)), scalar=True)
    return view_of(frame, array, found, flips)


def advanced_item(frame, array, keys):
    """An item by arrays of indices, which is a copy."""
    found = frame.graph.call(frame, operator.getitem, (array.tensor, keys))
    single = [k for k in keys if isinstance(k, TensorValue) and k.example.ndim == 0]
    if single and found.example.ndim == 0:
        return ArrayValue(frame.graph.call_method(frame, "clone", (found,)), scalar=True)
    if single:
        return refuse(frame, "a view whose place is not known")
    if found.example.ndim < 2:
        return ArrayValue(found, scalar=found.example.ndim == 0)
    before, outer, order = taken_order(array, keys)
    made = ordered(frame, found, order)
    if not before:
        return ArrayValue(made)
    front = (*range(before, before + outer), *range(before), *range(before + outer, made.example.ndim))
    held = frame.graph.call(frame, torch.permute, (made, front))  # NumPy makes that and gives a view of it
    return view_of(frame, ArrayValue(held), made)


def taken_order(array, keys):
    """Of what arrays of indices take: how many dims come before those of the indices, how many these are, and the order of all in
    memory, in which these are outermost."""
    parts, steps, dim = whole(keys, array.example.ndim), [], 0
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


def dims_of(part):
    """Of how many dims a part of a key takes items."""
    if part is None or part is Ellipsis:
        return 0
    return part.example.ndim if is_mask(part) else 1


def is_mask(part):
    """Whether a part of a key is an array of booleans."""
    return isinstance(part, TensorValue) and part.example.dtype is torch.bool


def step_of(part):
    """The step of a slice, 1 where it is not known."""
    step = part.parts[2].constant() if part.parts[2].is_constant() else None
    return step if type(step) is int else 1


def whole(keys, ndim):
    """The parts of a key with as many slices as it leaves out."""
    missing = ndim - sum(dims_of(k) for k in keys)
    everything = SliceValue(*[ConstantValue(None)] * 3)
    if Ellipsis not in [k for k in keys if not isinstance(k, (SymNumber, SliceValue))]:
        keys = (*keys, Ellipsis)
    found = []
    for k in keys:
        found += [everything] * missing if k is Ellipsis else [k]
    return found


def in_memory(frame, array, keys):
    """(the key that finds the same items in the memory, the dims of the result that run backwards there)"""
    places, flips, dim, new = [], [], 0, 0
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


def opposite(frame, place):
    """The index from the other end."""
    return ConstantValue(-1).binary(frame, "-", place) if isinstance(place, SymNumber) else -1 - place


def slice_in_memory(frame, array, dim, key):
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


def set_item(frame, array, key, source):
    """array[key] = source, a tensor of its dtype; of arrays with dims that run backwards, or such a key."""
    keys = index(frame, array, key)
    if any(isinstance(k, TensorValue) for k in keys):
        return refuse(frame, "items by arrays of indices or of booleans in a view with negative strides")
    places, flips = in_memory(frame, array, keys)
    if is_element(keys, array.example.ndim):
        return frame.graph.call(frame, operator.setitem, (array.memory, places, source))
    found = frame.graph.call(frame, operator.getitem, (array.memory, places))
    return SpecialView(frame, found, flips, array.writeable, array).write(frame, source)


def is_special_place(frame, array, key):
    """Whether set_item is what stores there."""
    parts = key.all_items(frame) if isinstance(key, TupleValue) else [key]
    return bool(array.flips) or any(map(runs_backwards, parts))
