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


@decomposition(aten.gather)
def gather(x, dim, index, *, sparse_grad=False):
    if not x.ndim or not index.ndim:
        return NotImplemented
    return prims.gather(x, dim_of(x, dim), to(index, torch.int64))


@decomposition(aten.index_select)
def index_select(x, dim, index):
    if not x.ndim or not index.ndim:
        return NotImplemented
    return prims.index_select(x, dim_of(x, dim), index)


@decomposition(aten.embedding)
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if indices.ndim == 1:
        return prims.index_select(weight, 0, indices)
    return prims.index(weight, (indices,))


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
    return to(prims.index_put(zeros, (indices,), wide_grad, True), grad.dtype)


def _has_mask(indices: Any) -> bool:
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


@decomposition(aten.index.Tensor)
def index(x, indices):
    return NotImplemented if _has_mask(indices) else prims.index(x, tuple(indices))


@decomposition(*overloads_of("_unsafe_index", "Tensor"))
def _unsafe_index(x, indices):
    return index(x, indices)


@decomposition(aten.index_put, aten._unsafe_index_put)
def index_put(x, indices, values, accumulate=False):
    if _has_mask(indices):
        return _masked_put(x, indices, values, accumulate)
    return prims.index_put(x, tuple(indices), to(values, x.dtype), accumulate)


def _masked_put(x: PrimValue, indices: Any, values: PrimValue, accumulate: bool) -> Any:
    """x[mask] = number is a select; anything else needs the eager kernel."""
    mask = indices[0]
    if len(indices) != 1 or accumulate or values.ndim or mask.dtype is not torch.bool:
        return NotImplemented
    for _ in range(x.ndim - mask.ndim):
        mask = prims.unsqueeze(mask, mask.ndim)
    return prims.where(mask, to(values, x.dtype), x)


@decomposition(*overloads_of("scatter", "src", "value"))
def scatter(x, dim, index, src):
    if not x.ndim or not index.ndim:
        return NotImplemented
    return prims.scatter(x, dim_of(x, dim), index, to(src, x.dtype))


@decomposition(aten.scatter_add)
def scatter_add(x, dim, index, src):
    if not x.ndim or not index.ndim:
        return NotImplemented
    return prims.scatter_add(x, dim_of(x, dim), index, to(src, x.dtype))


@decomposition(aten.scatter_reduce.two)
def scatter_reduce(x, dim, index, src, reduce, *, include_self=True):
    if not x.ndim or not index.ndim:
        return NotImplemented
    return prims.scatter_reduce(x, dim_of(x, dim), index, src, reduce, include_self)


@decomposition(aten.index_add)
def index_add(x, dim, index, src, *, alpha=1):
    if not x.ndim or not index.ndim:
        return NotImplemented
    return prims.index_add(x, dim_of(x, dim), index, src, alpha)


@decomposition(aten.index_copy)
def index_copy(x, dim, index, src):
    if not x.ndim or not index.ndim:
        return NotImplemented
    return prims.index_copy(x, dim_of(x, dim), index, src)


@decomposition(aten.index_fill.int_Scalar)
def index_fill(x, dim, index, value):
    if not x.ndim or not index.ndim:
        return NotImplemented
    dim = dim_of(x, dim)
    sizes = (*x.sizes[:dim], index.sizes[0], *x.sizes[dim + 1 :])
    return prims.index_copy(x, dim, index, prims.full(sizes, value, x.dtype, x.device))


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


