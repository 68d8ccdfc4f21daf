"""Result specs of view prims: the strides a view would have, where it can be one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..elementwise import Sizes, contiguous, same_layout
from ..op import Op
from ..promotion import complex_of, real_of
from ..spec import TensorSpec
from ..symbols import Size, active, floordiv, maximum, minimum
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


def viewed(x: TensorSpec, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None) -> TensorSpec:
    """x with another geometry."""
    return TensorSpec(x.dtype, x.device, tuple(sizes), tuple(strides), x.offset if offset is None else offset)


@rule()
def expand(x: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    lead = len(sizes) - len(x.sizes)
    strides: list[Size] = [0] * lead
    for size, stride, new in zip(x.sizes, x.strides, sizes[lead:], strict=True):
        grows = size.__class__ is int and size == 1 and not (new.__class__ is int and new == 1)
        strides.append(0 if grows else stride)
    # a new leading dim gets stride 0 unless nothing is repeated, where eager counts on from the next dim
    for i in range(lead - 1, -1, -1):
        if sizes[i].__class__ is int and sizes[i] == 1:
            after = sizes[i + 1] * strides[i + 1] if i + 1 < len(sizes) else 1
            strides[i] = after
    return viewed(x, sizes, strides)


@rule()
def permute(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    return viewed(x, [x.sizes[d] for d in dims], [x.strides[d] for d in dims])


@rule()
def reshape(x: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    strides = view_strides(x.sizes, x.strides, tuple(sizes))
    if strides is None:
        return TensorSpec(x.dtype, x.device, tuple(sizes))
    return viewed(x, sizes, strides)


def view_strides(sizes: Sizes, strides: Sizes, new_sizes: Sizes) -> Sizes | None:
    """The strides that show the same elements in new sizes, or None when only a copy can."""
    if strides == contiguous(sizes):
        return contiguous(new_sizes)
    if any(s.__class__ is int and s == 0 for s in sizes):
        return strides if sizes == new_sizes else contiguous(new_sizes)
    result: list[Size] = [0] * len(new_sizes)
    place = len(new_sizes) - 1
    step = strides[-1] if strides else 1
    chunk: Size = 1
    done: Size = 1
    for dim in range(len(sizes) - 1, -1, -1):
        chunk = chunk * sizes[dim]
        if dim > 0 and (active.equal(sizes[dim - 1], 1) or active.equal(strides[dim - 1], chunk * step)):
            continue
        while place >= 0 and (not active.equal(done, chunk) or active.equal(new_sizes[place], 1)):
            if exceeds(done * new_sizes[place], chunk):
                return None
            result[place] = done * step
            done = done * new_sizes[place]
            place -= 1
        if not active.equal(done, chunk):
            return None
        if dim > 0:
            step, chunk, done = strides[dim - 1], 1, 1
    return tuple(result) if place == -1 else None


def exceeds(a: Size, b: Size) -> bool:
    """a > b, decided where it is open."""
    return a > b if a.__class__ is int and b.__class__ is int else active.decide(">", a, b)


@rule()
def slice(x: TensorSpec, dim: int, start: Size, end: Size, step: int) -> TensorSpec:
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[dim] = end - start if step == 1 else floordiv(end - start + step - 1, step)
    strides[dim] = strides[dim] * step
    return viewed(x, sizes, strides, x.offset + start * x.strides[dim])


@rule()
def select(x: TensorSpec, dim: int, index: Size) -> TensorSpec:
    sizes = (*x.sizes[:dim], *x.sizes[dim + 1 :])
    strides = (*x.strides[:dim], *x.strides[dim + 1 :])
    return viewed(x, sizes, strides, x.offset + index * x.strides[dim])


@rule()
def squeeze(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    keep = [i for i in range(len(x.sizes)) if i not in dims]
    return viewed(x, [x.sizes[i] for i in keep], [x.strides[i] for i in keep])


@rule()
def unsqueeze(x: TensorSpec, dim: int) -> TensorSpec:
    stride = x.sizes[dim] * x.strides[dim] if dim < len(x.sizes) else 1
    return viewed(x, (*x.sizes[:dim], 1, *x.sizes[dim:]), (*x.strides[:dim], stride, *x.strides[dim:]))


@rule()
def as_strided(x: TensorSpec, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None) -> TensorSpec:
    return viewed(x, sizes, strides, offset)


@rule()
def diagonal(x: TensorSpec, offset: int, dim1: int, dim2: int) -> TensorSpec:
    rows, cols = x.sizes[dim1], x.sizes[dim2]
    length = maximum(minimum(rows, cols - offset), 0) if offset >= 0 else maximum(minimum(rows + offset, cols), 0)
    skip = offset * x.strides[dim2] if offset >= 0 else -offset * x.strides[dim1]
    keep = [i for i in range(len(x.sizes)) if i not in (dim1, dim2)]
    start = x.offset if length.__class__ is int and length == 0 else x.offset + skip
    strides = [x.strides[i] for i in keep] + [x.strides[dim1] + x.strides[dim2]]
    return viewed(x, [x.sizes[i] for i in keep] + [length], strides, start)


@rule()
def flip(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x))


@rule()
def unfold(x: TensorSpec, dim: int, size: int, step: int) -> TensorSpec:
    if not x.sizes:
        return viewed(x, (size,), (1,))
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[dim] = floordiv(x.sizes[dim] - size, step) + 1
    strides[dim] = strides[dim] * step
    return viewed(x, [*sizes, size], [*strides, x.strides[dim]])


@rule()
def view_as_real(x: TensorSpec) -> TensorSpec:
    strides = (*[s * 2 for s in x.strides], 1)
    return TensorSpec(real_of(x.dtype), x.device, (*x.sizes, 2), strides, x.offset * 2)


@rule()
def view_as_complex(x: TensorSpec) -> TensorSpec:
    strides = tuple([floordiv(s, 2) for s in x.strides[:-1]])
    return TensorSpec(complex_of(x.dtype), x.device, x.sizes[:-1], strides, floordiv(x.offset, 2))


@rule()
def view_dtype(x: TensorSpec, dtype: torch.dtype) -> TensorSpec:
    old, new = x.dtype.itemsize, dtype.itemsize
    last = floordiv(x.sizes[-1] * old, new) if x.sizes else 1
    sizes = (*x.sizes[:-1], last) if x.sizes else ()
    strides = (*[floordiv(s * old, new) for s in x.strides[:-1]], 1) if x.sizes else ()
    return TensorSpec(dtype, x.device, sizes, strides, floordiv(x.offset * old, new))
