"""Tensors from nothing; `pin_memory` and strided layout are accepted and mean nothing here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..op import PrimValue, Scalar, prims
from ..promotion import is_float, number_dtype
from ..symbols import Size
from .table import Operand, aten, decomposition, to
from .view import expected


def _placed(dtype: torch.dtype | None, device: torch.device | None) -> tuple[torch.dtype, torch.device]:
    spec = expected()
    if spec is not None:
        return spec.dtype, spec.device
    return dtype or torch.get_default_dtype(), device or torch.device("cpu")


def _filled(sizes: Sequence[Size], value: Scalar, dtype: torch.dtype | None, device: torch.device | None) -> PrimValue:
    dtype, device = _placed(dtype, device)
    return prims.full(tuple(sizes), value, dtype, device)


@decomposition(aten.full)
def full(
    sizes: Sequence[Size],
    value: Scalar,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return _filled(sizes, value, dtype or number_dtype(value), device)


@decomposition(aten.zeros, aten._efficientzerotensor)
def zeros(
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return _filled(sizes, 0, dtype, device)


@decomposition(aten.ones)
def ones(
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return _filled(sizes, 1, dtype, device)


def _uninitialized(
    sizes: Sequence[Size], dtype: torch.dtype, device: torch.device, strides: Sequence[Size] | None = None
) -> PrimValue:
    """Memory as it is, or what torch fills it with where algorithms are to be deterministic."""
    if not (torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory):
        if strides is not None:
            return prims.empty_strided(tuple(sizes), tuple(strides), dtype, device)
        return prims.empty(tuple(sizes), dtype, device)
    whole = not (dtype.is_floating_point or dtype.is_complex)
    value = True if dtype == torch.bool else torch.iinfo(dtype).max if whole else float("nan")
    return prims.full(tuple(sizes), value, dtype, device)


@decomposition(aten.empty.memory_format)
def empty(
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> PrimValue:
    dtype, device = _placed(dtype, device)
    return _uninitialized(sizes, dtype, device)


@decomposition(aten.empty_strided)
def empty_strided(
    sizes: Sequence[Size],
    strides: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    dtype, device = _placed(dtype, device)
    return _uninitialized(sizes, dtype, device, strides)


@decomposition(aten.new_empty_strided)
def new_empty_strided(
    x: PrimValue,
    sizes: Sequence[Size],
    strides: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return _uninitialized(sizes, dtype or x.dtype, device or x.device, strides)


def _like(x: PrimValue, value: Scalar, dtype: torch.dtype | None, device: torch.device | None) -> PrimValue:
    return prims.full(x.sizes, value, dtype or x.dtype, device or x.device)


@decomposition(aten.full_like)
def full_like(
    x: PrimValue,
    value: Scalar,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> PrimValue:
    return _like(x, value, dtype, device)


@decomposition(aten.zeros_like)
def zeros_like(
    x: PrimValue,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> PrimValue:
    return _like(x, 0, dtype, device)


@decomposition(aten.ones_like)
def ones_like(
    x: PrimValue,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> PrimValue:
    return _like(x, 1, dtype, device)


@decomposition(aten.empty_like)
def empty_like(
    x: PrimValue,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> PrimValue:
    return _uninitialized(x.sizes, dtype or x.dtype, device or x.device)


@decomposition(aten.new_full)
def new_full(
    x: PrimValue,
    sizes: Sequence[Size],
    value: Scalar,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return prims.full(tuple(sizes), value, dtype or x.dtype, device or x.device)


@decomposition(aten.new_zeros)
def new_zeros(
    x: PrimValue,
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return prims.full(tuple(sizes), 0, dtype or x.dtype, device or x.device)


@decomposition(aten.new_ones)
def new_ones(
    x: PrimValue,
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return prims.full(tuple(sizes), 1, dtype or x.dtype, device or x.device)


@decomposition(aten.new_empty)
def new_empty(
    x: PrimValue,
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return _uninitialized(sizes, dtype or x.dtype, device or x.device)


@decomposition(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: PrimValue, value: Operand) -> PrimValue:
    if value.__class__ is PrimValue:
        number = to(value if value.device == x.device else prims.device_put(value, x.device), x.dtype)
        return prims.clone(prims.expand(number, x.sizes))
    return prims.full(x.sizes, value, x.dtype, x.device)


@decomposition(aten.scalar_tensor)
def scalar_tensor(
    value: Scalar,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    dtype, device = _placed(dtype, device)
    return prims.scalar_tensor(value, dtype, device)


def _count(start: Any, end: Any, step: Any) -> Size:
    wanted = expected()
    if wanted is not None:
        return wanted.sizes[0]
    return max(0, math.ceil((end - start) / step))


@decomposition(aten.arange.start_step)
def arange(
    start: Scalar,
    end: Scalar,
    step: Scalar = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    if dtype is None:
        floats = any(isinstance(v, float) for v in (start, end, step))
        dtype = torch.get_default_dtype() if floats else torch.int64
    dtype, device = _placed(dtype, device)
    count = _count(start, end, step)
    if not is_float(dtype):  # eager counts the elements before it rounds
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    return prims.iota(count, start, step, dtype, device)


@decomposition(aten.arange.start)
def arange_start(start: Scalar, end: Scalar, **kwargs: Any) -> PrimValue:
    return arange(start, end, 1, **kwargs)


@decomposition(aten.arange)
def arange_end(end: Scalar, **kwargs: Any) -> PrimValue:
    return arange(0, end, 1, **kwargs)


@decomposition(aten.linspace)
def linspace(
    start: Scalar,
    end: Scalar,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    dtype, device = _placed(dtype, device)
    return prims.linspace(start, end, steps, dtype, device)


@decomposition(aten.eye)
def eye(
    n: Size,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    dtype, device = _placed(dtype, device)
    return prims.eye(n, n, dtype, device)


@decomposition(aten.eye.m)
def eye_m(
    n: Size,
    m: Size,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    dtype, device = _placed(dtype, device)
    return prims.eye(n, m, dtype, device)
