"""Gather, scatter, pad, concatenate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..op import PrimValue, Scalar, prims
from ..promotion import result_dtype
from ..symbols import Size
from .table import Operand, aten, decomposition, dim_of, overloads_of, to


def is_empty_vector(x: PrimValue) -> bool:
    """The 1-d tensor without elements that cat ignores."""
    return x.ndim == 1 and x.sizes[0].__class__ is int and x.sizes[0] == 0


@decomposition(aten.cat)
def cat(xs: Sequence[PrimValue], dim: int = 0) -> PrimValue:
    dtype = result_dtype(*xs)
    kept = [to(x, dtype) for x in xs if not is_empty_vector(x)] or [to(xs[0], dtype)]
    if len(kept) == 1:
        return prims.clone(kept[0])
    return prims.cat(tuple(kept), dim_of(kept[0], dim))


@decomposition(aten.stack)
def stack(xs: Sequence[PrimValue], dim: int = 0) -> PrimValue:
    dtype = result_dtype(*xs)
    dim = dim + xs[0].ndim + 1 if dim < 0 else dim
    return prims.cat(tuple(prims.unsqueeze(to(x, dtype), dim) for x in xs), dim)


@decomposition(aten.constant_pad_nd)
def constant_pad_nd(x: PrimValue, pad: Sequence[Size], value: Scalar = 0) -> PrimValue:
    pairs: list[tuple[Size, Size]] = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        pairs[x.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    if all(p.__class__ is int and p == 0 for pair in pairs for p in pair):
        return prims.clone(x)
    return prims.pad(x, tuple(pairs), value)


def _vector(x: Any) -> Any:
    """A 0-dim tensor as one of one element; numbers are left alone."""
    return prims.reshape(x, (1,)) if x.__class__ is PrimValue and not x.ndim else x


def _shaped(result: PrimValue, x: PrimValue) -> PrimValue:
    """Back to 0 dims when x has none."""
    return result if x.ndim else prims.reshape(result, ())


@decomposition(aten.gather)
def gather(x: PrimValue, dim: int, index: PrimValue, *, sparse_grad: bool = False) -> PrimValue:
    if any(size.__class__ is int and size == 0 for size in index.sizes):  # of as many dims as it likes
        return prims.full(tuple(index.sizes), 0, x.dtype, x.device)
    found = prims.gather(_vector(x), dim_of(x, dim), _vector(to(index, torch.int64)))
    return found if index.ndim else prims.reshape(found, ())


@decomposition(aten.index_select)
def index_select(x: PrimValue, dim: int, index: PrimValue) -> PrimValue:
    return _shaped(prims.index_select(_vector(x), dim_of(x, dim), _vector(index)), x)


@decomposition(aten.embedding)
def embedding(
    weight: PrimValue, indices: PrimValue, padding_idx: Size = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> PrimValue:
    if indices.ndim == 1:
        return prims.index_select(weight, 0, indices)
    return prims.index(weight, (indices,), False)


@decomposition(aten.embedding_dense_backward)
def embedding_dense_backward(
    grad: PrimValue, indices: PrimValue, num_weights: Size, padding_idx: Size, scale_grad_by_freq: bool
) -> PrimValue:
    if scale_grad_by_freq:
        return NotImplemented
    width = grad.sizes[-1]
    wide_grad = to(grad, torch.float32) if grad.dtype in (torch.float16, torch.bfloat16) else grad
    if padding_idx.__class__ is not int or padding_idx >= 0:
        padded = prims.unsqueeze(prims.eq(indices, padding_idx), indices.ndim)
        wide_grad = prims.where(padded, 0, wide_grad)
    zeros = prims.full((num_weights, width), 0, wide_grad.dtype, grad.device)
    return to(prims.index_put(zeros, (indices,), wide_grad, True, False), grad.dtype)


def _has_mask(indices: Sequence[PrimValue | None]) -> bool:
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


@decomposition(aten.index.Tensor)
def index(x: PrimValue, indices: Sequence[PrimValue | None]) -> PrimValue:
    return NotImplemented if _has_mask(indices) else prims.index(x, _beside(x, indices))


@decomposition(*overloads_of("_unsafe_index", "Tensor"))
def _unsafe_index(x: PrimValue, indices: Sequence[PrimValue | None]) -> PrimValue:
    return index(x, indices)


@decomposition(aten.index_put, aten._unsafe_index_put)
def index_put(x: PrimValue, indices: Sequence[PrimValue | None], values: PrimValue, accumulate: bool = False) -> PrimValue:
    if _has_mask(indices):
        return _masked_put(x, indices, values, accumulate)
    # a number that is written may lie on the CPU
    values = values if values.device == x.device else prims.device_put(values, x.device)
    return _added(x, _beside(x, indices), values) if accumulate else prims.index_put(x, _beside(x, indices), values, False)


def _added(x: PrimValue, indices: Sequence[PrimValue | None], values: PrimValue) -> PrimValue:
    """x with values added at indices. On a GPU, eager adds up what meets at one index in float32, and rounds the sum to halves once."""
    if x.device.type != "cuda" or x.dtype not in (torch.float16, torch.bfloat16) or values.dtype is not x.dtype:
        return prims.index_put(x, indices, values, True)
    return to(prims.index_put(to(x, torch.float32), indices, to(values, torch.float32), True), x.dtype)


def _beside(x: PrimValue, tensors: Sequence[PrimValue | None]) -> tuple[PrimValue | None, ...]:
    """The tensors on x's device: the indices of a tensor on a GPU may lie on the CPU."""
    return tuple(t if t is None or t.device == x.device else prims.device_put(t, x.device) for t in tensors)


def _masked_put(x: PrimValue, indices: Sequence[PrimValue | None], values: PrimValue, accumulate: bool) -> PrimValue:
    """x[mask] = values that do not tell the mask's positions apart is a select; anything else needs the eager kernel.

    That checks, too, whether a number of another dtype can be written as one of x's.
    """
    if values.dtype is not x.dtype:
        return NotImplemented
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    place, mask = given[0]
    after = x.ndim - place - mask.ndim
    at = values.ndim - after - 1  # the dim of the values that stands for the mask's
    if len(given) != 1 or mask.dtype is not torch.bool or not mask.ndim or at > place:
        return NotImplemented
    if at >= 0:
        if values.sizes[at].__class__ is not int or values.sizes[at] != 1:
            return NotImplemented
        values = prims.reshape(values, (*values.sizes[:at], *[1] * mask.ndim, *values.sizes[at + 1 :]))
    for _ in range(after):
        mask = prims.unsqueeze(mask, mask.ndim)
    return prims.where(mask, prims.add(x, values) if accumulate else values, x)


@decomposition(*overloads_of("scatter", "src", "value"))
def scatter(x: PrimValue, dim: int, index: PrimValue, src: Operand) -> PrimValue:
    return _shaped(prims.scatter(_vector(x), dim_of(x, dim), _vector(index), _vector(to(src, x.dtype))), x)


@decomposition(aten.scatter_add)
def scatter_add(x: PrimValue, dim: int, index: PrimValue, src: PrimValue) -> PrimValue:
    return _shaped(prims.scatter_add(_vector(x), dim_of(x, dim), _vector(index), _vector(to(src, x.dtype))), x)


@decomposition(aten.scatter_reduce.two)
def scatter_reduce(
    x: PrimValue, dim: int, index: PrimValue, src: PrimValue, reduce: str, *, include_self: bool = True
) -> PrimValue:
    return _shaped(prims.scatter_reduce(_vector(x), dim_of(x, dim), _vector(index), _vector(src), reduce, include_self), x)


@decomposition(aten.index_add)
def index_add(x: PrimValue, dim: int, index: PrimValue, src: PrimValue, *, alpha: Scalar = 1) -> PrimValue:
    return _shaped(prims.index_add(_vector(x), dim_of(x, dim), _vector(index), _vector(src), alpha), x)


@decomposition(aten.index_copy)
def index_copy(x: PrimValue, dim: int, index: PrimValue, src: PrimValue) -> PrimValue:
    return _shaped(prims.index_copy(_vector(x), dim_of(x, dim), _vector(index), _vector(src)), x)


@decomposition(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: PrimValue, dim: int, index: PrimValue, value: Operand) -> PrimValue:
    dim, y, index = dim_of(x, dim), _vector(x), _vector(index)
    sizes = (*y.sizes[:dim], index.sizes[0], *y.sizes[dim + 1 :])
    if value.__class__ is PrimValue:
        values = prims.expand(to(value, x.dtype), sizes)
    else:
        values = prims.full(sizes, value, x.dtype, x.device)
    return _shaped(prims.index_copy(y, dim, index, values, True), x)


@decomposition(aten.take)
def take(x: PrimValue, index: PrimValue) -> PrimValue:
    return prims.take(x, index)


@decomposition(aten.roll)
def roll(x: PrimValue, shifts: Sequence[Size], dims: Sequence[int] = ()) -> PrimValue:
    if not dims:
        if not x.ndim:
            return prims.clone(x)
        flat = prims.roll(prims.reshape(x, (x.numel(),)), tuple(shifts), (0,))
        return prims.reshape(flat, x.sizes)
    dims = tuple(dim_of(x, d) for d in dims)
    return prims.roll(x, tuple(shifts), dims) if x.ndim else prims.clone(x)


@decomposition(aten.tril)
def tril(x: PrimValue, diagonal: Size = 0) -> PrimValue:
    return prims.tril(x, diagonal)


@decomposition(aten.triu)
def triu(x: PrimValue, diagonal: Size = 0) -> PrimValue:
    return prims.triu(x, diagonal)


@decomposition(aten.bucketize.Tensor)
def bucketize(x: PrimValue, boundaries: PrimValue, *, out_int32: bool = False, right: bool = False) -> PrimValue:
    return prims.bucketize(x, boundaries, right, out_int32)


@decomposition(aten.unfold_backward)
def unfold_backward(grad: PrimValue, sizes: Sequence[Size], dim: int, size: int, step: int) -> PrimValue:
    """Positions of each window along dim, added up."""
    if not sizes:
        return prims.reshape(grad, ())
    dim = dim + len(sizes) if dim < 0 else dim
    zeros = prims.full(tuple(sizes), 0, grad.dtype, grad.device)
    windows, total = grad.sizes[dim], sizes[dim]
    if not all(v.__class__ is int for v in (windows, total, size, step)):
        return NotImplemented
    start = prims.mul(prims.iota(windows, 0, 1, torch.int64, grad.device), step)
    index = prims.add(prims.unsqueeze(start, 1), prims.unsqueeze(prims.iota(size, 0, 1, torch.int64, grad.device), 0))
    last = grad.ndim - 1
    moved = prims.permute(grad, (*range(dim + 1), last, *range(dim + 1, last)))
    joined = (*grad.sizes[:dim], windows * size, *grad.sizes[dim + 1 : last])
    return prims.index_add(zeros, dim, prims.reshape(index, (windows * size,)), prims.reshape(moved, joined), 1)


@decomposition(*overloads_of("scatter", "reduce", "value_reduce"))
def scatter_with(x: PrimValue, dim: int, index: PrimValue, src: Operand, *, reduce: str) -> PrimValue:
    if src.__class__ is not PrimValue:
        return NotImplemented
    return scatter_reduce(x, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


@decomposition(aten.index_reduce)
def index_reduce(
    x: PrimValue, dim: int, index: PrimValue, src: PrimValue, reduce: str, *, include_self: bool = True
) -> PrimValue:
    return prims.index_reduce(x, dim_of(x, dim), index, src, reduce, include_self) if x.ndim and index.ndim else NotImplemented


@decomposition(aten.masked_scatter)
def masked_scatter(x: PrimValue, mask: PrimValue, src: PrimValue) -> PrimValue:
    return prims.masked_scatter(x, mask, src) if tuple(mask.sizes) == tuple(x.sizes) else NotImplemented


@decomposition(aten.put)
def put(x: PrimValue, index: PrimValue, src: PrimValue, accumulate: bool = False) -> PrimValue:
    return prims.put(x, index, src, accumulate)


@decomposition(aten.searchsorted.Tensor)
def searchsorted(
    sorted_sequence: PrimValue,
    x: PrimValue,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: PrimValue | None = None,
) -> PrimValue:
    return prims.searchsorted(sorted_sequence, x, right or side == "right", out_int32, sorter)


def _in_range(x: PrimValue, indices: Sequence[PrimValue | None]) -> tuple[PrimValue | None, ...]:
    """Indices moved into x, where the mask makes the value irrelevant."""
    return tuple(
        None if i is None else prims.minimum(prims.maximum(i, -x.sizes[d]), x.sizes[d] - 1) for d, i in enumerate(indices)
    )


def _all_static(x: PrimValue) -> bool:
    return all(s.__class__ is int and s > 0 for s in x.sizes)


@decomposition(*overloads_of("_unsafe_masked_index", "default"))
def _unsafe_masked_index(x: PrimValue, mask: PrimValue, indices: Sequence[PrimValue | None], fill: Scalar) -> PrimValue:
    if _has_mask(indices) or not _all_static(x):
        return NotImplemented
    return prims.where(mask, prims.index(x, _in_range(x, indices)), fill)


@decomposition(*overloads_of("_unsafe_masked_index_put_accumulate", "default"))
def _unsafe_masked_index_put_accumulate(
    x: PrimValue, mask: PrimValue, indices: Sequence[PrimValue | None], values: PrimValue
) -> PrimValue:
    if _has_mask(indices) or not _all_static(x):
        return NotImplemented
    return _added(x, _in_range(x, indices), prims.where(mask, values, 0))


@decomposition(aten.diag_embed)
def diag_embed(x: PrimValue, offset: int = 0, dim1: int = -2, dim2: int = -1) -> PrimValue:
    ndim = x.ndim + 1
    dim1, dim2 = (d + ndim if d < 0 else d for d in (dim1, dim2))
    below, above = max(-offset, 0), max(offset, 0)
    rows = prims.pad(x, (*[(0, 0)] * (x.ndim - 1), (below, above)), 0)
    n = rows.sizes[-1]
    column, row = prims.iota(n, 0, 1, torch.int64, x.device), prims.iota(n, 0, 1, torch.int64, x.device)
    hit = prims.eq(prims.sub(prims.unsqueeze(column, 0), prims.unsqueeze(row, 1)), offset)
    full = prims.where(hit, prims.unsqueeze(rows, x.ndim), prims.full((), 0, x.dtype, x.device))
    rest = iter(range(ndim - 2))
    order = tuple(ndim - 2 if d == dim1 else ndim - 1 if d == dim2 else next(rest) for d in range(ndim))
    return prims.clone(prims.permute(full, order))
