"""Prefix scans, sorting."""

from __future__ import annotations

import torch

from ..op import prims
from ..promotion import is_float
from .table import aten, decomposition, dim_of, to


def _summed_dtype(x, dtype):
    return dtype or (x.dtype if is_float(x.dtype) else torch.int64)


@decomposition(aten.cumsum)
def cumsum(x, dim, *, dtype=None):
    y = to(x, _summed_dtype(x, dtype))
    return prims.cumsum(y, dim_of(x, dim)) if x.ndim else prims.clone(y)


@decomposition(aten.cumprod)
def cumprod(x, dim, *, dtype=None):
    y = to(x, _summed_dtype(x, dtype))
    return prims.cumprod(y, dim_of(x, dim)) if x.ndim else prims.clone(y)


def _one(x):
    """A 0-dim tensor and its position."""
    return prims.clone(x), prims.full((), 0, torch.int64, x.device)


@decomposition(aten.cummax)
def cummax(x, dim):
    return prims.cummax(x, dim_of(x, dim)) if x.ndim else _one(x)


@decomposition(aten.cummin)
def cummin(x, dim):
    return prims.cummin(x, dim_of(x, dim)) if x.ndim else _one(x)


@decomposition(aten.logcumsumexp)
def logcumsumexp(x, dim):
    if not x.ndim:
        return prims.clone(x)
    return NotImplemented if x.dtype.is_complex else prims.logcumsumexp(x, dim_of(x, dim))


@decomposition(aten.sort)
def sort(x, dim=-1, descending=False):
    return prims.sort(x, dim_of(x, dim), descending, False)


@decomposition(aten.sort.stable)
def sort_stable(x, *, stable=False, dim=-1, descending=False):
    return prims.sort(x, dim_of(x, dim), descending, bool(stable))


@decomposition(aten.topk)
def topk(x, k, dim=-1, largest=True, sorted=True):
    return prims.topk(x, k, dim_of(x, dim), largest, sorted)
