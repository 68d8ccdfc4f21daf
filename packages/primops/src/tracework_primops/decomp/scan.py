"""Prefix scans, sorting."""

from __future__ import annotations

import torch

from ..op import Op, PrimValue, prims
from ..promotion import is_float
from ..symbols import Size
from .table import aten, decomposition, dim_of, to


def _summed_dtype(x: PrimValue, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if is_float(x.dtype) else torch.int64)


@decomposition(aten.cumsum)
def cumsum(x: PrimValue, dim: int, *, dtype: torch.dtype | None = None) -> PrimValue:
    y, dim = to(x, _summed_dtype(x, dtype)), dim_of(x, dim)
    return prims.cumsum(y, dim) if x.ndim else prims.clone(y)


@decomposition(aten.cumprod)
def cumprod(x: PrimValue, dim: int, *, dtype: torch.dtype | None = None) -> PrimValue:
    y, dim = to(x, _summed_dtype(x, dtype)), dim_of(x, dim)
    return prims.cumprod(y, dim) if x.ndim else prims.clone(y)


def _extremes(prim: Op, x: PrimValue, dim: int) -> tuple[PrimValue, PrimValue]:
    """The highest or lowest so far, and its position."""
    if x.ndim:
        return prim(x, dim_of(x, dim))
    if dim not in (0, -1):
        raise IndexError(f"{prim.name}(): Expected reduction dim -1 or 0 for scalar but got {dim}")
    return prims.clone(x), prims.full((), 0, torch.int64, x.device)


@decomposition(aten.cummax)
def cummax(x: PrimValue, dim: int) -> tuple[PrimValue, PrimValue]:
    return _extremes(prims.cummax, x, dim)


@decomposition(aten.cummin)
def cummin(x: PrimValue, dim: int) -> tuple[PrimValue, PrimValue]:
    return _extremes(prims.cummin, x, dim)


@decomposition(aten.logcumsumexp)
def logcumsumexp(x: PrimValue, dim: int) -> PrimValue:
    dim = dim_of(x, dim)
    if not x.ndim:
        return prims.clone(x)
    return NotImplemented if x.dtype.is_complex else prims.logcumsumexp(x, dim)


@decomposition(aten.sort)
def sort(x: PrimValue, dim: int = -1, descending: bool = False) -> tuple[PrimValue, PrimValue]:
    return prims.sort(x, dim_of(x, dim), descending, False)


@decomposition(aten.sort.stable)
def sort_stable(
    x: PrimValue, *, stable: bool | None = False, dim: int = -1, descending: bool = False
) -> tuple[PrimValue, PrimValue]:
    return prims.sort(x, dim_of(x, dim), descending, bool(stable))


@decomposition(aten.topk)
def topk(x: PrimValue, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[PrimValue, PrimValue]:
    return prims.topk(x, k, dim_of(x, dim), largest, sorted)
