"""Views, copies and tensors from nothing. ONNX has values only: strides are restored outside of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops import TensorSpec
from tracework_primops.spec import contiguous_strides

from .table import Refused, Value, row
from .writer import FLOATS, Writer


@row("expand")
def _expand(w: Writer, out: Any, x: Value, sizes: Any) -> str:
    return w.expand(x.name, sizes)


@row("permute")
def _permute(w: Writer, out: Any, x: Value, dims: Any) -> str:
    return w.op("Transpose", x.name, perm=list(dims)) if list(dims) != sorted(dims) else x.name


@row("reshape")
def _reshape(w: Writer, out: Any, x: Value, sizes: Any) -> str:
    return w.reshape(x.name, sizes)


@row("slice")
def _slice(w: Writer, out: Any, x: Value, dim: int, start: Any, end: Any, step: Any) -> str:
    """An end that is a number from the dim's end is written so: TVM loses track of sizes that a computed end gives."""
    missing = x.sizes[dim] - end
    if isinstance(missing, int) and not isinstance(end, int) and missing >= 0:
        end = -missing if missing else 2**63 - 1
    return w.op("Slice", x.name, w.size(start), w.size(end), w.ints(dim), w.size(step))


@row("squeeze")
def _squeeze(w: Writer, out: Any, x: Value, dims: Any) -> str:
    return w.op("Squeeze", x.name, w.ints(*dims)) if dims else x.name


@row("unsqueeze")
def _unsqueeze(w: Writer, out: Any, x: Value, dim: int) -> str:
    return w.op("Unsqueeze", x.name, w.ints(dim))


@row("select")
def _select(w: Writer, out: Any, x: Value, dim: int, index: Any) -> str:
    return w.op("Gather", x.name, w.scalar(index), axis=dim)


def positions(w: Writer, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> str:
    """Where each element of a strided layout is: offset + the sum of index * stride, int64, of these sizes."""
    found = w.size(offset)
    for d, (size, stride) in enumerate(zip(sizes, strides)):
        found = w.op("Add", found, w.op("Mul", w.line(size, d, len(sizes)), w.size(stride)))
    return found if sizes else w.op("Squeeze", found, w.ints(0))


def in_memory_order(x: TensorSpec) -> bool:
    """Whether row-major order is the order in memory, from the start."""
    return x.is_contiguous and x.offset == 0


@row("as_strided")
def _as_strided(w: Writer, out: Any, x: Value, sizes: Any, strides: Any, offset: Any) -> str:
    if not in_memory_order(x.spec):
        raise Refused("it reads the memory of a tensor that has gaps or another order in it")
    return w.op("Gather", w.reshape(x.name, (-1,)), positions(w, sizes, strides, offset), axis=0)


@row("diagonal")
def _diagonal(w: Writer, out: Any, x: Value, offset: int, dim1: int, dim2: int) -> str:
    strides = contiguous_strides(x.sizes)
    rest = [d for d in range(x.ndim) if d not in (dim1, dim2)]
    start = strides[dim2] * offset if offset >= 0 else strides[dim1] * -offset
    along = [strides[d] for d in rest] + [strides[dim1] + strides[dim2]]
    return w.op("Gather", w.reshape(x.name, (-1,)), positions(w, out.sizes, along, start), axis=0)


@row("flip")
def _flip(w: Writer, out: Any, x: Value, dims: Any) -> str:
    if not dims:
        return x.name
    back = w.ints(*[-1] * len(dims))
    return w.op("Slice", x.name, back, w.sizes([-1 - x.sizes[d] for d in dims]), w.ints(*dims), back)


@row("unfold")
def _unfold(w: Writer, out: Any, x: Value, dim: int, size: Any, step: Any) -> str:
    if x.ndim == 0:
        return w.reshape(x.name, out.sizes)
    found = w.op("Gather", x.name, positions(w, (out.sizes[dim], size), (step, 1), 0), axis=dim)
    order = [d for d in range(x.ndim + 1) if d != dim + 1] + [dim + 1]
    return w.op("Transpose", found, perm=order)


@row("clone")
def _clone(w: Writer, out: Any, x: Value) -> str:
    return x.name


@row("contiguous")
def _contiguous(w: Writer, out: Any, x: Value, strides: Any) -> str:
    return x.name


@row("device_put")
def _device_put(w: Writer, out: Any, x: Value, device: Any) -> str:
    if x.spec.device != out.device:
        raise Refused("an engine has one device")
    return x.name


# from nothing -----------------------------------------------------------------------------------


@row("full")
def _full(w: Writer, out: Any, sizes: Any, value: Any, dtype: Any, device: Any) -> str:
    return w.full(value, sizes, out.dtype)


@row("empty")
def _empty(w: Writer, out: Any, sizes: Any, dtype: Any, device: Any) -> str:
    return w.full(0, sizes, out.dtype)


@row("empty_strided")
def _empty_strided(w: Writer, out: Any, sizes: Any, strides: Any, dtype: Any, device: Any) -> str:
    return w.full(0, sizes, out.dtype)


@row("scalar_tensor")
def _scalar_tensor(w: Writer, out: Any, value: Any, dtype: Any, device: Any) -> str:
    return w.operand(value, out.dtype)


@row("iota")
def _iota(w: Writer, out: Any, n: Any, start: Any, step: Any, dtype: Any, device: Any) -> str:
    """Floats are computed in float64 and rounded once."""
    wide = torch.float64 if out.dtype in FLOATS else torch.int64
    if out.dtype is torch.bool:
        raise Refused("an arange of bools")
    line = w.cast(w.iota(n), wide) if wide is torch.float64 else w.iota(n)
    found = w.op("Add", w.op("Mul", line, w.operand(step, wide)), w.operand(start, wide))
    return found if wide is out.dtype else w.cast(found, out.dtype)


@row("linspace")
def _linspace(w: Writer, out: Any, start: Any, end: Any, steps: Any, dtype: Any, device: Any) -> str:
    """The upper half is counted from the end, as in eager."""
    if out.dtype not in FLOATS or not isinstance(steps, int):
        raise Refused("it is written for floats and a known number of steps")
    if isinstance(start, (int, float)) and isinstance(end, (int, float)) and steps < 2:
        return w.full(start, (steps,), out.dtype)
    wide = torch.float64
    low, high = w.operand(start, wide), w.operand(end, wide)
    step = w.op("Div", w.op("Sub", high, low), w.constant(steps - 1, wide))
    line = w.cast(w.iota(steps), wide)
    up = w.op("Add", low, w.op("Mul", step, line))
    down = w.op("Sub", high, w.op("Mul", step, w.op("Sub", w.constant(steps - 1, wide), line)))
    return w.cast(w.op("Where", w.op("Less", line, w.constant(steps // 2, wide)), up, down), out.dtype)


@row("eye")
def _eye(w: Writer, out: Any, n: Any, m: Any, dtype: Any, device: Any) -> str:
    rows, columns = w.line(n, 0, 2), w.line(m, 1, 2)
    return w.cast(w.op("Equal", rows, columns), out.dtype)


def _triangle(kind: str) -> Any:
    def write(w: Writer, out: Any, x: Value, diagonal: Any) -> str:
        *_, rows, columns = x.sizes
        row_of, column_of = w.line(rows, 0, 2), w.line(columns, 1, 2)
        edge = w.op("Add", row_of, w.size(diagonal))
        kept = w.op(kind, column_of, edge)
        return w.where(kept, x.name, w.constant(0, x.dtype), x.dtype)

    return write


row("tril")(_triangle("LessOrEqual"))
row("triu")(_triangle("GreaterOrEqual"))


@row("cat")
def _cat(w: Writer, out: Any, xs: Any, dim: int) -> str:
    return w.op("Concat", *[x.name for x in xs], axis=dim) if len(xs) > 1 else xs[0].name


@row("pad")
def _pad(w: Writer, out: Any, x: Value, pairs: Any, value: Any) -> str:
    low, high = [p[0] for p in pairs], [p[1] for p in pairs]
    if x.dtype is torch.bool:
        padded = w.op("Pad", w.cast(x.name, torch.int32), w.sizes(low + high), w.constant(int(bool(value)), torch.int32))
        return w.cast(padded, torch.bool)
    return w.op("Pad", x.name, w.sizes(low + high), w.operand(value, x.dtype))


@row("roll")
def _roll(w: Writer, out: Any, x: Value, shifts: Any, dims: Any) -> str:
    name = x.name
    flat = not dims
    if flat:
        name, sizes, dims = w.reshape(name, (-1,)), (math.prod(x.sizes),), (0,)
    else:
        sizes = x.sizes
    for shift, dim in zip(shifts, dims):
        size = sizes[dim]
        if not isinstance(size, int) and not isinstance(shift, int):
            raise Refused("a shift that is a size")
        if isinstance(size, int) and isinstance(shift, int):
            start = w.ints(-shift % max(size, 1))
        else:
            start = w.op("Mod", w.size(-shift), w.op("Max", w.size(size), w.ints(1)))
        rear = w.op("Slice", name, start, w.size(size), w.ints(dim), w.ints(1))
        front = w.op("Slice", name, w.ints(0), start, w.ints(dim), w.ints(1))
        name = w.op("Concat", rear, front, axis=dim)
    return w.reshape(name, x.sizes) if flat else name
