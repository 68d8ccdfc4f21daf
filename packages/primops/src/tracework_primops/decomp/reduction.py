"""Reductions: dims made explicit, dtypes as ATen accumulates and returns them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..op import Op, PrimValue, Scalar, prims
from ..promotion import compute_dtype, is_float, real_of
from ..symbols import Size
from .table import Rule, aten, decomposition, dim_of, dims_of, overloads_of, to, wide


def count_of(x: PrimValue, dims: tuple[int, ...]) -> Size:
    """How many elements are reduced."""
    count: Size = 1
    for d in dims:
        count = count * x.sizes[d]
    return count


def _sum_dtype(x: PrimValue, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if is_float(x.dtype) else torch.int64)


def sum_in(x: PrimValue, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype) -> PrimValue:
    """Sum in `dtype`; x is converted first, which a backend fuses."""
    y = to(x, dtype)
    return prims.sum(y, dims, keepdim, dtype) if dims else prims.clone(y)


@decomposition(aten.sum)
def sum(x: PrimValue, *, dtype: torch.dtype | None = None) -> PrimValue:
    return sum_in(x, dims_of(x, None), False, _sum_dtype(x, dtype))


@decomposition(aten.sum.dim_IntList)
def sum_dims(
    x: PrimValue, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> PrimValue:
    return sum_in(x, dims_of(x, dims), keepdim, _sum_dtype(x, dtype))


@decomposition(aten.nansum)
def nansum(
    x: PrimValue, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> PrimValue:
    y = prims.where(prims.isnan(x), 0.0, x) if is_float(x.dtype) else x
    return sum_dims(y, dims, keepdim, dtype=dtype)


@decomposition(aten.mean)
def mean(x: PrimValue, *, dtype: torch.dtype | None = None) -> PrimValue:
    return mean_dims(x, None, False, dtype=dtype)


@decomposition(aten.mean.dim)
def mean_dims(
    x: PrimValue, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> PrimValue:
    out = dtype or x.dtype
    dims = dims_of(x, dims)
    wide_dtype = compute_dtype(out)
    total = sum_in(to(x, out), dims, keepdim, wide_dtype) if wide_dtype is not out else sum_in(x, dims, keepdim, out)
    count = count_of(x, dims)
    return to(prims.div(total, count), out)


@decomposition(aten.prod)
def prod(x: PrimValue, *, dtype: torch.dtype | None = None) -> PrimValue:
    y = to(x, _sum_dtype(x, dtype))
    return prims.prod(y, dims_of(x, None), False, None) if x.ndim else prims.clone(y)


@decomposition(aten.prod.dim_int)
def prod_dim(x: PrimValue, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> PrimValue:
    y, dim = to(x, _sum_dtype(x, dtype)), dim_of(x, dim)
    return prims.prod(y, (dim,), keepdim, None) if x.ndim else prims.clone(y)


@decomposition(aten.amax)
def amax(x: PrimValue, dims: Sequence[int] = (), keepdim: bool = False) -> PrimValue:
    dims = dims_of(x, dims)
    return prims.amax(x, dims, keepdim) if dims else prims.clone(x)


@decomposition(aten.amin)
def amin(x: PrimValue, dims: Sequence[int] = (), keepdim: bool = False) -> PrimValue:
    dims = dims_of(x, dims)
    return prims.amin(x, dims, keepdim) if dims else prims.clone(x)


@decomposition(aten.aminmax)
def aminmax(x: PrimValue, *, dim: int | None = None, keepdim: bool = False) -> tuple[PrimValue, PrimValue]:
    return amin(x, () if dim is None else (dim,), keepdim), amax(x, () if dim is None else (dim,), keepdim)


@decomposition(aten.max)
def max(x: PrimValue) -> PrimValue:
    return amax(x)


@decomposition(aten.min)
def min(x: PrimValue) -> PrimValue:
    return amin(x)


@decomposition(aten.max.dim)
def max_dim(x: PrimValue, dim: int, keepdim: bool = False) -> tuple[PrimValue, PrimValue]:
    dim = dim_of(x, dim)
    if not x.ndim:
        return prims.clone(x), prims.full((), 0, torch.int64, x.device)
    return prims.amax(x, (dim,), keepdim), prims.argmax(_ordered(x), dim, keepdim)


@decomposition(aten.min.dim)
def min_dim(x: PrimValue, dim: int, keepdim: bool = False) -> tuple[PrimValue, PrimValue]:
    dim = dim_of(x, dim)
    if not x.ndim:
        return prims.clone(x), prims.full((), 0, torch.int64, x.device)
    return prims.amin(x, (dim,), keepdim), prims.argmin(_ordered(x), dim, keepdim)


def _ordered(x: PrimValue) -> PrimValue:
    """Positions of extremes are not defined for bool."""
    return to(x, torch.uint8) if x.dtype is torch.bool else x


def _arg(prim: Op) -> Rule:
    def rule(x: PrimValue, dim: int | None = None, keepdim: bool = False) -> PrimValue:
        if dim is not None:
            dim = dim_of(x, dim)
        if not x.ndim:
            return prims.full((), 0, torch.int64, x.device)
        if dim is not None:
            return prim(x, dim, keepdim)
        found = prim(prims.reshape(x, (x.numel(),)), 0, False)
        return prims.reshape(found, (1,) * x.ndim) if keepdim else found

    return rule


argmax = decomposition(aten.argmax)(_arg(prims.argmax))
argmin = decomposition(aten.argmin)(_arg(prims.argmin))


def _truth(prim: Op) -> Rule:
    def rule(x: PrimValue, dims: int | Sequence[int] | None = None, keepdim: bool = False) -> PrimValue:
        dims = dims_of(x, dims)
        if not dims and x.dtype is torch.bool:
            return prims.clone(x)
        found = prim(x, dims, keepdim) if dims else prims.ne(x, 0)
        return prims.convert(found, torch.uint8) if x.dtype is torch.uint8 else found

    return rule


any = decomposition(*overloads_of("any", "default", "dim", "dims"))(_truth(prims.any))
all = decomposition(*overloads_of("all", "default", "dim", "dims"))(_truth(prims.all))


def var_mean_of(
    x: PrimValue, dims: Sequence[int] | int | None, correction: Scalar | None, keepdim: bool
) -> tuple[PrimValue, PrimValue]:
    """Variance and mean in x's dtype, computed wide."""
    y = wide(x)
    variance, mean = prims.var_mean(y, dims_of(x, dims), 1 if correction is None else correction, keepdim)
    return to(variance, real_of(x.dtype)), to(mean, x.dtype)


@decomposition(aten.var.correction)
def var(x: PrimValue, dims: Sequence[int] | None = None, *, correction: Scalar | None = None, keepdim: bool = False) -> PrimValue:
    return var_mean_of(x, dims, correction, keepdim)[0]


@decomposition(aten.var.dim)
def var_dim(x: PrimValue, dims: Sequence[int] | None, unbiased: bool = True, keepdim: bool = False) -> PrimValue:
    return var_mean_of(x, dims, int(unbiased), keepdim)[0]


@decomposition(aten.std.correction)
def std(x: PrimValue, dims: Sequence[int] | None = None, *, correction: Scalar | None = None, keepdim: bool = False) -> PrimValue:
    variance, _ = prims.var_mean(wide(x), dims_of(x, dims), 1 if correction is None else correction, keepdim)
    return to(prims.sqrt(variance), real_of(x.dtype))


@decomposition(aten.var_mean.correction)
def var_mean(
    x: PrimValue, dims: Sequence[int] | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[PrimValue, PrimValue]:
    return var_mean_of(x, dims, correction, keepdim)


@decomposition(aten.std_mean.correction)
def std_mean(
    x: PrimValue, dims: Sequence[int] | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[PrimValue, PrimValue]:
    variance, mean = prims.var_mean(wide(x), dims_of(x, dims), 1 if correction is None else correction, keepdim)
    return to(prims.sqrt(variance), real_of(x.dtype)), to(mean, x.dtype)


@decomposition(aten.logsumexp)
def logsumexp(x: PrimValue, dims: Sequence[int], keepdim: bool = False) -> PrimValue:
    x = x if is_float(x.dtype) else to(x, torch.get_default_dtype())
    if x.dtype.is_complex:
        return NotImplemented
    if not x.ndim:
        return prims.clone(x)
    return to(prims.logsumexp(wide(x), dims_of(x, dims), keepdim), x.dtype)


@decomposition(aten.linalg_vector_norm)
def linalg_vector_norm(
    x: PrimValue, ord: float = 2, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> PrimValue:
    out = real_of(dtype or x.dtype)
    if not x.ndim:
        x, dims, keepdim = prims.reshape(x, (1,)), None, False
    y = wide(to(x, dtype) if dtype is not None else x)
    dims = dims_of(x, dims)
    if y.dtype.is_complex or not dims:
        return NotImplemented
    if ord == 2:
        found = prims.sqrt(prims.sum(prims.mul(y, y), dims, keepdim, None))
    elif ord == math.inf:
        found = prims.amax(prims.abs(y), dims, keepdim)
    elif ord == -math.inf:
        found = prims.amin(prims.abs(y), dims, keepdim)
    elif ord == 1:
        found = prims.sum(prims.abs(y), dims, keepdim, None)
    elif ord == 0:
        found = prims.sum(prims.convert(prims.ne(y, 0), y.dtype), dims, keepdim, None)
    else:
        found = prims.pow(prims.sum(prims.pow(prims.abs(y), ord), dims, keepdim, None), 1.0 / ord)
    return to(found, out)


@decomposition(*overloads_of("norm", "Scalar", "ScalarOpt_dim", "ScalarOpt_dtype", "ScalarOpt_dim_dtype"))
def norm(
    x: PrimValue,
    p: float | None = 2,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> PrimValue:
    return linalg_vector_norm(x, 2 if p is None else p, dims, keepdim, dtype=dtype)


@decomposition(*overloads_of("count_nonzero", "dim_IntList", "default"))
def count_nonzero(x: PrimValue, dims: Sequence[int] | int | None = None) -> PrimValue:
    dims, counted = dims_of(x, dims), prims.convert(prims.ne(x, 0), torch.int64)
    return prims.sum(counted, dims, False, None) if dims else counted


def _picked(prim: Op) -> Rule:
    return lambda x, dim=-1, keepdim=False: prim(x, dim_of(x, dim), keepdim)


decomposition(aten.median.dim)(_picked(prims.median))
decomposition(aten.nanmedian.dim)(_picked(prims.nanmedian))
decomposition(aten.mode)(_picked(prims.mode))


@decomposition(aten.kthvalue)
def kthvalue(x: PrimValue, k: Size, dim: int = -1, keepdim: bool = False) -> tuple[PrimValue, PrimValue]:
    return prims.kthvalue(x, k, dim_of(x, dim), keepdim) if x.ndim else NotImplemented


@decomposition(aten.trace)
def trace(x: PrimValue) -> PrimValue:
    return sum(prims.diagonal(x, 0, 0, 1))


@decomposition(aten.histc)
def histc(x: PrimValue, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> PrimValue:
    return prims.histc(x, bins, min, max)
