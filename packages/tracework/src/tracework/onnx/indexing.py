"""Reads and writes at computed positions. Indices are checked in the model: see Writer.index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops.spec import contiguous_strides

from .table import Refused, Value, row
from .views import positions
from .writer import FLOATS, Writer

REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@row("gather")
def _gather(w: Writer, out: Any, x: Value, dim: int, index: Value) -> str:
    if x.ndim == 0 or index.ndim == 0:
        raise Refused("a gather of one number")
    name = w.index(index, x.sizes[dim], False)
    others = [d for d in range(x.ndim) if d != dim]
    if all(x.sizes[d] == index.sizes[d] for d in others):
        return w.op("GatherElements", x.name, name, axis=dim)
    # ONNX has this for equal sizes in the other dims: a gather from x flattened
    strides = contiguous_strides(x.sizes)
    place = w.op("Mul", name, w.size(strides[dim]))
    for d in others:
        place = w.op("Add", place, w.op("Mul", w.line(index.sizes[d], d, x.ndim), w.size(strides[d])))
    return w.op("Gather", w.reshape(x.name, (-1,)), place, axis=0)


@row("index_select")
def _index_select(w: Writer, out: Any, x: Value, dim: int, index: Value) -> str:
    if x.ndim == 0 or index.ndim != 1:
        raise Refused("an index_select of one number")
    return w.op("Gather", x.name, w.index(index, x.sizes[dim], False), axis=dim)


@row("take")
def _take(w: Writer, out: Any, x: Value, index: Value) -> str:
    count: Any = 1
    for size in x.sizes:
        count = count * size
    return w.op("Gather", w.reshape(x.name, (-1,)), w.index(index, count, True), axis=0)


def _coordinates(w: Writer, x: Value, indices: Sequence[Any], wrap: bool) -> tuple[list[int], str, int]:
    """The indexed dims, their indices as one tensor with a last dim, and the number of dims of the broadcast index."""
    at = [d for d, index in enumerate(indices) if index is not None]
    names = [w.index(indices[d], x.sizes[d], wrap) for d in at]
    ndim = max(indices[d].ndim for d in at)
    if len(at) > 1:
        total = names[0]
        for name in names[1:]:
            total = w.op("Add", total, name)
        shape = w.op("Shape", total)
        names = [w.op("Expand", name, shape) for name in names]
    columns = [w.op("Unsqueeze", name, w.ints(-1)) for name in names]
    return at, w.op("Concat", *columns, axis=-1) if len(columns) > 1 else columns[0], ndim


def _bring_forward(w: Writer, name: str, at: Sequence[int], ndim: int) -> str:
    order = [*at, *[d for d in range(ndim) if d not in at]]
    return w.op("Transpose", name, perm=order) if order != sorted(order) else name


def _put_back(at: Sequence[int], index_ndim: int, ndim: int) -> list[int] | None:
    """The order of the result's dims, out of (index dims, other dims); None where it is that already."""
    if at[-1] - at[0] + 1 != len(at) or at[0] == 0:
        return None
    rest = ndim - len(at)
    before = [index_ndim + d for d in range(at[0])]
    after = [index_ndim + d for d in range(at[0], rest)]
    return [*before, *range(index_ndim), *after]


@row("index")
def _index(w: Writer, out: Any, x: Value, indices: Any, wrap: bool) -> str:
    at = [d for d, index in enumerate(indices) if index is not None]
    if not at:
        return x.name
    if len(at) == 1:
        return w.op("Gather", x.name, w.index(indices[at[0]], x.sizes[at[0]], wrap), axis=at[0])
    at, where, index_ndim = _coordinates(w, x, indices, wrap)
    found = w.op("GatherND", _bring_forward(w, x.name, at, x.ndim), where)
    order = _put_back(at, index_ndim, x.ndim)
    return found if order is None else w.op("Transpose", found, perm=order)


@row("index_put")
def _index_put(w: Writer, out: Any, x: Value, indices: Any, values: Value, accumulate: bool, wrap: bool) -> str:
    if not any(i is not None for i in indices):
        raise Refused("an index_put without an index")
    if accumulate and x.dtype is torch.bool:
        raise Refused("a sum of bools")
    at, where, index_ndim = _coordinates(w, x, indices, wrap)
    moved = _bring_forward(w, x.name, at, x.ndim)
    order = _put_back(at, index_ndim, x.ndim)
    picked = w.op("Slice", w.op("Shape", where), w.ints(0), w.ints(-1))
    others = w.sizes([s for d, s in enumerate(x.sizes) if d not in at])
    updates_shape = w.op("Concat", picked, others, axis=0)
    updates = values.name
    if order is not None:
        missing = len(order) - values.ndim
        if missing:
            updates = w.op("Unsqueeze", updates, w.ints(*range(missing)))
        updates = w.op("Transpose", updates, perm=[order.index(d) for d in range(len(order))])
    updates = w.op("Expand", updates, updates_shape)
    found = w.op("ScatterND", moved, where, updates, **({"reduction": "add"} if accumulate else {}))
    back = [*at, *[d for d in range(x.ndim) if d not in at]]
    return w.op("Transpose", found, perm=[back.index(d) for d in range(x.ndim)]) if back != sorted(back) else found


def _scattered(w: Writer, x: Value, dim: int, index: Value, src: Any, reduction: str = "none") -> str:
    if x.ndim == 0 or index.ndim == 0:
        raise Refused("a scatter of one number")
    name = w.index(index, x.sizes[dim], False)
    if isinstance(src, Value):
        updates = _leading_of(w, src, index)
    else:
        updates = w.op("Expand", w.operand(src, x.dtype), w.op("Shape", name))
    found = w.op("ScatterElements", x.name, name, updates, axis=dim, reduction=reduction)
    if x.dtype not in FLOATS or reduction not in ("max", "min"):
        return found
    # whether NaN counts as the largest is left open by ONNX
    nans = [w.cast(w.op("IsNaN", n), torch.int32) for n in (x.name, updates)]
    counts = w.op("ScatterElements", nans[0], name, nans[1], axis=dim, reduction="add")
    return w.op("Where", w.op("Greater", counts, w.constant(0, torch.int32)), w.constant(math.nan, x.dtype), found)


def _leading_of(w: Writer, src: Value, index: Value) -> str:
    """src cut to index's sizes."""
    others = [d for d in range(src.ndim) if src.sizes[d] != index.sizes[d]]
    if not others:
        return src.name
    return w.op("Slice", src.name, w.ints(*[0] * len(others)), w.sizes([index.sizes[d] for d in others]), w.ints(*others))


@row("scatter")
def _scatter(w: Writer, out: Any, x: Value, dim: int, index: Value, src: Any) -> str:
    return _scattered(w, x, dim, index, src)


@row("scatter_add")
def _scatter_add(w: Writer, out: Any, x: Value, dim: int, index: Value, src: Value) -> str:
    if x.dtype is torch.bool:
        raise Refused("a sum of bools")
    return _scattered(w, x, dim, index, src, "add")


@row("scatter_reduce")
def _scatter_reduce(w: Writer, out: Any, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool) -> str:
    if reduce not in REDUCTIONS or not include_self or x.dtype is torch.bool:
        raise Refused("ONNX has sum, prod, amax and amin that begin with what is there")
    return _scattered(w, x, dim, index, src, REDUCTIONS[reduce])


def _rows(w: Writer, x: Value, dim: int, index: Value, wrap: bool) -> tuple[str, Any]:
    """The index of rows, spread over the other dims."""
    if x.ndim == 0 or index.ndim != 1:
        raise Refused("rows of one number")
    name = w.index(index, x.sizes[dim], wrap)
    sizes = [*x.sizes[:dim], index.sizes[0], *x.sizes[dim + 1 :]]
    after = range(1, x.ndim - dim)
    return w.expand(w.op("Unsqueeze", name, w.ints(*after)) if after else name, sizes), sizes


@row("index_add")
def _index_add(w: Writer, out: Any, x: Value, dim: int, index: Value, src: Value, alpha: Any) -> str:
    if x.dtype is torch.bool:
        raise Refused("a sum of bools")
    where, sizes = _rows(w, x, dim, index, False)
    updates = src.name if alpha == 1 else w.op("Mul", src.name, w.operand(alpha, x.dtype))
    return w.op("ScatterElements", x.name, where, w.expand(updates, sizes), axis=dim, reduction="add")


@row("index_copy")
def _index_copy(w: Writer, out: Any, x: Value, dim: int, index: Value, src: Value, wrap: bool) -> str:
    where, sizes = _rows(w, x, dim, index, wrap)
    return w.op("ScatterElements", x.name, where, w.expand(src.name, sizes), axis=dim)


@row("slice_scatter")
def _slice_scatter(w: Writer, out: Any, x: Value, src: Value, dim: int, start: Any, end: Any, step: Any) -> str:
    n = src.sizes[dim]
    places = w.op("Add", w.op("Mul", w.line(n, dim, x.ndim), w.size(step)), w.size(start))
    where = w.expand(places, src.sizes)
    return w.op("ScatterElements", x.name, where, src.name, axis=dim)


@row("select_scatter")
def _select_scatter(w: Writer, out: Any, x: Value, src: Value, dim: int, index: Any) -> str:
    chosen = w.op("Equal", w.line(x.sizes[dim], dim, x.ndim), w.size(index))
    return w.where(chosen, w.op("Unsqueeze", src.name, w.ints(dim)), x.name, x.dtype)


@row("diagonal_scatter")
def _diagonal_scatter(w: Writer, out: Any, x: Value, src: Value, offset: int, dim1: int, dim2: int) -> str:
    """Written with the two dims last, as a select over rows and columns."""
    if x.dtype is torch.bool:
        raise Refused("a diagonal of bools")
    order = [d for d in range(x.ndim) if d not in (dim1, dim2)] + [dim1, dim2]
    moved = w.op("Transpose", x.name, perm=order)
    rows, columns = x.sizes[dim1], x.sizes[dim2]
    row_of, column_of = w.line(rows, 0, 2), w.line(columns, 1, 2)
    chosen = w.op("Equal", w.op("Sub", column_of, row_of), w.ints(offset))
    # the diagonal's elements by row, or, for one below the main diagonal, by column
    by_row = offset >= 0
    rest = [0] * (src.ndim - 1)
    missing = (rows if by_row else columns) - src.sizes[-1]
    padded = w.op("Pad", src.name, w.sizes([*rest, 0, *rest, missing]), w.constant(0, x.dtype))
    lines = w.op("Unsqueeze", padded, w.ints(-1 if by_row else -2))
    found = w.where(chosen, lines, moved, x.dtype)
    return w.op("Transpose", found, perm=[order.index(d) for d in range(x.ndim)])


@row("put")
def _put(w: Writer, out: Any, x: Value, index: Value, src: Value, accumulate: bool) -> str:
    if accumulate and x.dtype is torch.bool:
        raise Refused("a sum of bools")
    count: Any = 1
    for size in x.sizes:
        count = count * size
    where = w.reshape(w.index(index, count, True), (-1,))
    updates, flat = w.reshape(src.name, (-1,)), w.reshape(x.name, (-1,))
    found = w.op("ScatterElements", flat, where, updates, axis=0, **({"reduction": "add"} if accumulate else {}))
    return w.reshape(found, x.sizes)


@row("as_strided_scatter")
def _as_strided_scatter(w: Writer, out: Any, x: Value, src: Value, sizes: Any, strides: Any, offset: Any) -> str:
    if not x.spec.is_contiguous or x.spec.offset != 0:
        raise Refused("it writes to the memory of a tensor that has gaps or another order in it")
    where = w.reshape(positions(w, sizes, strides, offset), (-1,))
    found = w.op("ScatterElements", w.reshape(x.name, (-1,)), where, w.reshape(src.name, (-1,)), axis=0)
    return w.reshape(found, x.sizes)
