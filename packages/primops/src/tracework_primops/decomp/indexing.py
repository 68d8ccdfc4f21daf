"""Gather, scatter, pad, concatenate."""

from __future__ import annotations

from typing import Any

import torch

from ..op import PrimValue, prims
from ..promotion import result_dtype
from .table import aten, decomposition, dim_of, overloads_of, to


def is_empty_vector(x: PrimValue) -> bool:
    """The 1-d tensor without elements that cat ignores."""
    return x.ndim == 1 and x.sizes[0].__class__ is int and x.sizes[0] == 0


@decomposition(aten.cat)
def cat(xs, dim=0):
    dtype = result_dtype(*xs)
    kept = [to(x, dtype) for x in xs if not is_empty_vector(x)] or [to(xs[0], dtype)]
    if len(kept) == 1:
        return prims.clone(kept[0])
    return prims.cat(tuple(kept), dim_of(kept[0], dim))


@decomposition(aten.stack)
def stack(xs, dim=0):
    dtype = result_dtype(*xs)
    dim = dim + xs[0].ndim + 1 if dim < 0 else dim
    return prims.cat(tuple(prims.unsqueeze(to(x, dtype), dim) for x in xs), dim)


@decomposition(aten.constant_pad_nd)
def constant_pad_nd(x, pad, value=0):
    pairs: list[Any] = [(0, 0)] * x.ndim
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
def gather(x, dim, index, *, sparse_grad=False):
    if any(size.__class__ is int and size == 0 for size in index.sizes):  # of as many dims as it likes
        return prims.full(tuple(index.sizes), 0, x.dtype, x.device)
    found = prims.gather(_vector(x), dim_of(x, dim), _vector(to(index, torch.int64)))
    return found if index.ndim else prims.reshape(found, ())


@decomposition(aten.index_select)
def index_select(x, dim, index):
    return _shaped(prims.index_select(_vector(x), dim_of(x, dim), _vector(index)), x)


@decomposition(aten.embedding)
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if indices.ndim == 1:
        return prims.index_select(weight, 0, indices)
    return prims.index(weight, (indices,), False)


@decomposition(aten.embedding_dense_backward)
def embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq):
    if scale_grad_by_freq:
        return NotImplemented
    width = grad.sizes[-1]
    wide_grad = to(grad, torch.float32) if grad.dtype in (torch.float16, torch.bfloat16) else grad
    if padding_idx.__class__ is not int or padding_idx >= 0:
        padded = prims.unsqueeze(prims.eq(indices, padding_idx), indices.ndim)
        wide_grad = prims.where(padded, 0, wide_grad)
    zeros = prims.full((num_weights, width), 0, wide_grad.dtype, grad.device)
    return to(prims.index_put(zeros, (indices,), wide_grad, True, False), grad.dtype)


def _has_mask(indices: Any) -> bool:
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


@decomposition(aten.index.Tensor)
def index(x, indices):
    return NotImplemented if _has_mask(indices) else prims.index(x, _beside(x, indices))


@decomposition(*overloads_of("_unsafe_index", "Tensor"))
def _unsafe_index(x, indices):
    return index(x, indices)


@decomposition(aten.index_put, aten._unsafe_index_put)
def index_put(x, indices, values, accumulate=False):
    if _has_mask(indices):
        return _masked_put(x, indices, values, accumulate)
    return prims.index_put(x, _beside(x, indices), *_beside(x, [values]), accumulate)


def _beside(x: PrimValue, tensors: Any) -> tuple[Any, ...]:
    """The tensors on x's device: the indices of a tensor on a GPU, and a number that is written, may lie on the CPU."""
    return tuple(t if t is None or t.device == x.device else prims.device_put(t, x.device) for t in tensors)


def _masked_put(x: PrimValue, indices: Any, values: PrimValue, accumulate: bool) -> Any:
    """x[mask] = values that do not tell the mask's positions apart is a select; anything else needs the eager kernel.

    That checks, too, whether a number of another dtype can be written as one of x's.
    """
    if values.dtype is not x.dtype:
        return NotImplemented
    places = [d for d, i in enumerate(indices) if i is not None]
    mask = indices[places[0]]
    after = x.ndim - places[0] - mask.ndim
    at = values.ndim - after - 1  # the dim of the values that stands for the mask's
    if len(places) != 1 or mask.dtype is not torch.bool or not mask.ndim or at > places[0]:
        return NotImplemented
    if at >= 0:
        if values.sizes[at].__class__ is not int or values.sizes[at] != 1:
            return NotImplemented
        values = prims.reshape(values, (*values.sizes[:at], *[1] * mask.ndim, *values.sizes[at + 1 :]))
    for _ in range(after):
        mask = prims.unsqueeze(mask, mask.ndim)
    return prims.where(mask, prims.add(x, values) if accumulate else values, x)


@decomposition(*overloads_of("scatter", "src", "value"))
def scatter(x, dim, index, src):
    return _shaped(prims.scatter(_vector(x), dim_of(x, dim), _vector(index), _vector(to(src, x.dtype))), x)


@decomposition(aten.scatter_add)
def scatter_add(x, dim, index, src):
    return _shaped(prims.scatter_add(_vector(x), dim_of(x, dim), _vector(index), _vector(to(src, x.dtype))), x)


@decomposition(aten.scatter_reduce.two)
def scatter_reduce(x, dim, index, src, reduce, *, include_self=True):
    return _shaped(prims.scatter_reduce(_vector(x), dim_of(x, dim), _vector(index), _vector(src), reduce, include_self), x)


@decomposition(aten.index_add)
def index_add(x, dim, index, src, *, alpha=1):
    return _shaped(prims.index_add(_vector(x), dim_of(x, dim), _vector(index), _vector(src), alpha), x)


@decomposition(aten.index_copy)
def index_copy(x, dim, index, src):
    return _shaped(prims.index_copy(_vector(x), dim_of(x, dim), _vector(index), _vector(src)), x)


@decomposition(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x, dim, index, value):
    dim, y, index = dim_of(x, dim), _vector(x), _vector(index)
    sizes = (*y.sizes[:dim], index.sizes[0], *y.sizes[dim + 1 :])
    if value.__class__ is PrimValue:
        values = prims.expand(to(value, x.dtype), sizes)
    else:
        values = prims.full(sizes, value, x.dtype, x.device)
    return _shaped(prims.index_copy(y, dim, index, values, True), x)


@decomposition(aten.take)
def take(x, index):
    return prims.take(x, index)


@decomposition(aten.roll)
def roll(x, shifts, dims=()):
    if not dims:
        if not x.ndim:
            return prims.clone(x)
        flat = prims.roll(prims.reshape(x, (x.numel(),)), tuple(shifts), (0,))
        return prims.reshape(flat, x.sizes)
    return prims.roll(x, tuple(shifts), tuple(dim_of(x, d) for d in dims)) if x.ndim else prims.clone(x)


@decomposition(aten.tril)
def tril(x, diagonal=0):
    return prims.tril(x, diagonal)


@decomposition(aten.triu)
def triu(x, diagonal=0):
    return prims.triu(x, diagonal)


@decomposition(aten.bucketize.Tensor)
def bucketize(x, boundaries, *, out_int32=False, right=False):
    return prims.bucketize(x, boundaries, right, out_int32)


@decomposition(aten.unfold_backward)
def unfold_backward(grad, sizes, dim, size, step):
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
def scatter_with(x, dim, index, src, *, reduce):
    if src.__class__ is not PrimValue:
        return NotImplemented
    return scatter_reduce(x, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


@decomposition(aten.index_reduce)
def index_reduce(x, dim, index, src, reduce, *, include_self=True):
    return prims.index_reduce(x, dim_of(x, dim), index, src, reduce, include_self) if x.ndim and index.ndim else NotImplemented


@decomposition(aten.masked_scatter)
def masked_scatter(x, mask, src):
    return prims.masked_scatter(x, mask, src) if tuple(mask.sizes) == tuple(x.sizes) else NotImplemented


@decomposition(aten.put)
def put(x, index, src, accumulate=False):
    return prims.put(x, index, src, accumulate)


@decomposition(aten.searchsorted.Tensor)
def searchsorted(sorted_sequence, x, *, out_int32=False, right=False, side=None, sorter=None):
    return prims.searchsorted(sorted_sequence, x, right or side == "right", out_int32, sorter)


def _in_range(x: PrimValue, indices: Any) -> tuple[Any, ...]:
    """Indices moved into x, where the mask makes the value irrelevant."""
    return tuple(
        None if i is None else prims.minimum(prims.maximum(i, -x.sizes[d]), x.sizes[d] - 1) for d, i in enumerate(indices)
    )


def _all_static(x: PrimValue) -> bool:
    return all(s.__class__ is int and s > 0 for s in x.sizes)


@decomposition(*overloads_of("_unsafe_masked_index", "default"))
def _unsafe_masked_index(x, mask, indices, fill):
    if _has_mask(indices) or not _all_static(x):
        return NotImplemented
    return prims.where(mask, prims.index(x, _in_range(x, indices)), fill)


@decomposition(*overloads_of("_unsafe_masked_index_put_accumulate", "default"))
def _unsafe_masked_index_put_accumulate(x, mask, indices, values):
    if _has_mask(indices) or not _all_static(x):
        return NotImplemented
    return prims.index_put(x, _in_range(x, indices), prims.where(mask, values, 0), True)


@decomposition(aten.diag_embed)
def diag_embed(x, offset=0, dim1=-2, dim2=-1):
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
