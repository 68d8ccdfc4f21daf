"""ATen rows: views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..elementwise import contiguous
from ..meta import view as views
from ..meta.view import exceeds, view_strides, viewed
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Expr, Size, floordiv
from .rows import Refused, check, fresh, laid_out, refuses, row, row_major, slice_bounds, wrap_dim, wrap_index


def _is(size: Size, value: int) -> bool:
    """size == value without asking about symbols that are known to be 2 or more."""
    return size == value if size.__class__ is int else active.equal(size, value)


def infer_sizes(spec_numel: Size, sizes: Sequence[Size]) -> tuple[Size, ...]:
    """With -1 filled in."""
    sizes = tuple(sizes)
    known: Size = 1
    unknown = None
    for i, size in enumerate(sizes):
        if size.__class__ is int and size == -1:
            unknown = i
        else:
            known = size * known
    if unknown is None:
        check(active.equal(known, spec_numel))
        return sizes
    check(not (known.__class__ is int and known == 0))
    missing = floordiv(spec_numel, known)
    check(active.equal(missing * known, spec_numel))
    return (*sizes[:unknown], missing, *sizes[unknown + 1 :])


@row("view.default", "_unsafe_view.default", "_reshape_alias.default")
def view(x: TensorSpec, sizes: Sequence[Size], strides: Sequence[Size] | None = None) -> TensorSpec:
    new = infer_sizes(x.numel(), sizes)
    found = view_strides(x.sizes, x.strides, new)
    if found is None:
        raise Refused(RuntimeError)
    return viewed(x, new, found)


@row("detach.default", "alias.default", "lift.default", "_conj.default", "_neg_view.default", "detach_.default")
def alias(x: TensorSpec) -> TensorSpec:
    return x


@row("permute.default")
def permute(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    order = [wrap_dim(d, x.ndim) for d in dims]
    check(len(set(order)) == len(order) == x.ndim)
    return views.permute(x, order)


@row("transpose.int")
def transpose(x: TensorSpec, dim0: int, dim1: int) -> TensorSpec:
    order = list(range(x.ndim or 1))
    a, b = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
    order[a], order[b] = b, a
    return views.permute(x, order[: x.ndim])


@row("t.default")
def t(x: TensorSpec) -> TensorSpec:
    check(x.ndim <= 2)
    return views.permute(x, range(x.ndim)[::-1])


@row("expand.default")
def expand(x: TensorSpec, sizes: Sequence[Size], *, implicit: bool = False) -> TensorSpec:
    lead = len(sizes) - x.ndim
    check(lead >= 0)
    if not x.ndim:
        check(not any(s.__class__ is int and s < 0 for s in sizes))
        return viewed(x, sizes, (0,) * len(sizes))
    out_sizes: list[Size] = [0] * len(sizes)
    strides: list[Size] = [0] * len(sizes)
    for i in range(len(sizes) - 1, -1, -1):
        old = x.sizes[i - lead] if i >= lead else 1
        stride = x.strides[i - lead] if i >= lead else (out_sizes[i + 1] * strides[i + 1] if i + 1 < len(sizes) else 1)
        wanted = sizes[i]
        if wanted.__class__ is int and wanted == -1:
            check(i >= lead)
            wanted = old
        if wanted is not old and not (old.__class__ is int and old == 1 and wanted.__class__ is int and wanted == 1):
            if old.__class__ is int and old == 1:
                stride = 0
            elif not active.equal(old, wanted):
                check(active.is_fixed_one(old))
                stride = 0
        out_sizes[i], strides[i] = wanted, stride
    return viewed(x, out_sizes, strides)


@row("slice.Tensor")
def slice(x: TensorSpec, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> TensorSpec:
    check(x.ndim > 0, IndexError)
    dim = wrap_dim(dim, x.ndim)
    size, stride = x.sizes[dim], x.strides[dim]
    check(step.__class__ is not int or step > 0)
    first, last = slice_bounds(start, end, size)
    length = last - first
    if not (step.__class__ is int and step == 1):
        length = floordiv(length + step - 1, step)
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[dim], strides[dim] = length, stride * step
    return viewed(x, sizes, strides, x.offset + first * stride)


@row("select.int")
def select(x: TensorSpec, dim: int, index: int) -> TensorSpec:
    check(x.ndim > 0, IndexError)
    dim = wrap_dim(dim, x.ndim)
    place = wrap_index(index, x.sizes[dim])
    if place is None:
        raise Refused(IndexError)
    return views.select(x, dim, place)


@row("unsqueeze.default")
def unsqueeze(x: TensorSpec, dim: int) -> TensorSpec:
    dim = wrap_dim(dim, x.ndim + 1)
    stride = x.sizes[dim] * x.strides[dim] if dim < x.ndim else 1
    return viewed(x, (*x.sizes[:dim], 1, *x.sizes[dim:]), (*x.strides[:dim], stride, *x.strides[dim:]))


@row("squeeze.default")
def squeeze(x: TensorSpec) -> TensorSpec:
    kept = [d for d in range(x.ndim) if not _is(x.sizes[d], 1)]
    return viewed(x, [x.sizes[d] for d in kept], [x.strides[d] for d in kept])


@row("squeeze.dim", "squeeze.dims")
def squeeze_dims(x: TensorSpec, dims: Any) -> TensorSpec:
    wanted = {wrap_dim(d, x.ndim) for d in (dims if isinstance(dims, (list, tuple)) else (dims,))}
    kept = [d for d in range(x.ndim) if d not in wanted or not _is(x.sizes[d], 1)]
    return viewed(x, [x.sizes[d] for d in kept], [x.strides[d] for d in kept])


@row("split.Tensor", "unsafe_split.Tensor")
def split(x: TensorSpec, size: int, dim: int = 0) -> list[TensorSpec]:
    dim = wrap_dim(dim, x.ndim)
    whole = x.sizes[dim]
    if isinstance(whole, Expr) or isinstance(size, Expr):
        count = floordiv(whole + size - 1, size)
        count = count if isinstance(count, int) else active.carrier().fix(count)
    else:
        count = max((whole + size - 1) // size, 1) if size else 1
    lengths = [size] * (count - 1) + [whole - size * (count - 1)]
    return split_with_sizes(x, lengths, dim)


@row("split_with_sizes.default", "unsafe_split_with_sizes.default")
def split_with_sizes(x: TensorSpec, sizes: Sequence[Size], dim: int = 0) -> list[TensorSpec]:
    dim = wrap_dim(dim, x.ndim)
    total: Size = 0
    out = []
    for size in sizes:
        new = (*x.sizes[:dim], size, *x.sizes[dim + 1 :])
        out.append(viewed(x, new, x.strides, x.offset + total * x.strides[dim]))
        total = total + size
    check(active.equal(total, x.sizes[dim]))
    return out


@row("unbind.int")
def unbind(x: TensorSpec, dim: int = 0) -> list[TensorSpec]:
    dim = wrap_dim(dim, x.ndim)
    count = x.sizes[dim]
    if count.__class__ is not int:
        count = active.carrier().fix(count)
    return [select(x, dim, i) for i in range(count)]


@refuses("as_strided.default")
def as_strided(x: TensorSpec, sizes: Sequence[Size], strides: Sequence[Size], storage_offset: Size | None = None) -> None:
    check(len(sizes) == len(strides))
    check(not any(v.__class__ is int and v < 0 for v in (*sizes, *strides, storage_offset)))


@row("diagonal.default")
def diagonal(x: TensorSpec, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorSpec:
    a, b = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    check(a != b)
    return views.diagonal(x, offset, a, b)


@refuses("diag_embed.default")
def diag_embed(x: TensorSpec, offset: int = 0, dim1: int = -2, dim2: int = -1) -> None:
    check(wrap_dim(dim1, x.ndim + 1) != wrap_dim(dim2, x.ndim + 1))


laid_out(row_major, "diag_embed.default")


@refuses("unfold.default")
def unfold(x: TensorSpec, dim: int, size: Size, step: Size) -> None:
    dim = wrap_dim(dim, x.ndim)
    most = x.sizes[dim] if x.ndim else 1
    check(not (size.__class__ is int and size < 0) and not exceeds(size, most))
    check(not (step.__class__ is int and step <= 0))


@row("view_copy.default")
def view_copy(x: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    return fresh(x, view(x.replace(strides=contiguous(x.sizes)), sizes).sizes)


@row("narrow_copy.default")
def narrow_copy(x: TensorSpec, dim: int, start: int, length: int) -> TensorSpec:
    check(not dim >= x.ndim > 0)  # its kernel's own check, before the one that all views share
    return NotImplemented


@row("view.dtype")
def view_dtype(x: TensorSpec, dtype: torch.dtype) -> TensorSpec:
    if dtype.itemsize != x.dtype.itemsize:
        raise NotImplementedError
    return x.replace(dtype=dtype)
