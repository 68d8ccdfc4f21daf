"""Copies, casts and layouts."""

from __future__ import annotations

import torch

from ..op import PrimValue, prims
from .table import aten, decomposition, to


@decomposition(aten.clone)
def clone(x: PrimValue, *, memory_format: torch.memory_format | None = None) -> PrimValue:
    return prims.clone(x)


@decomposition(aten.contiguous)
def contiguous(x: PrimValue, *, memory_format: torch.memory_format | None = None) -> PrimValue:
    return prims.clone(x)


@decomposition(aten._to_copy)
def _to_copy(
    x: PrimValue,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> PrimValue:
    if isinstance(x, (int, float, complex)):  # under vmap
        return prims.full((), x, dtype, device or torch.device("cpu"))
    moved = device is not None and device != x.device
    y = prims.device_put(x, device) if moved else x
    if dtype is not None and dtype is not y.dtype:
        return prims.convert(y, dtype)
    return y if moved else prims.clone(x)


@decomposition(aten.copy)
def copy(x: PrimValue, src: PrimValue, non_blocking: bool = False) -> PrimValue:
    y = to(src if src.device == x.device else prims.device_put(src, x.device), x.dtype)
    return prims.clone(prims.expand(y, x.sizes) if tuple(y.sizes) != tuple(x.sizes) else y)


@decomposition(aten.copy_)
def copy_(x: PrimValue, src: PrimValue, non_blocking: bool = False) -> PrimValue:
    """Only left in a functional graph as the final write to a mutated input."""
    return prims.copy_into(x, to(src, x.dtype))
