"""Reductions over dims, and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops import TensorSpec, bounds

from .pointwise import exponential, floats_only, truth
from .table import Refused, Value, row
from .writer import FLOATS, Writer


def reduced(w: Writer, kind: str, name: str, dims: Sequence[int], keepdim: bool) -> str:
    """The reduction of this name over dims."""
    return w.op(kind, name, w.ints(*dims), keepdims=int(keepdim)) if dims else name


def count(x: TensorSpec, dims: Sequence[int]) -> Any:
    """How many elements each result is made of."""
    found: Any = 1
    for d in dims:
        found = found * x.sizes[d]
    return found


@row("sum")
def _sum(w: Writer, out: Any, x: Value, dims: Any, keepdim: bool, dtype: Any) -> str:
    if out.dtype is torch.bool:
        return _some(w, x, dims, keepdim)
    return reduced(w, "ReduceSum", w.in_dtype(x, out.dtype), dims, keepdim)


@row("prod")
def _prod(w: Writer, out: Any, x: Value, dims: Any, keepdim: bool, dtype: Any) -> str:
    if out.dtype is torch.bool:
        raise Refused("a product of bools is all()")
    return reduced(w, "ReduceProd", w.in_dtype(x, out.dtype), dims, keepdim)


def extreme_over(w: Writer, kind: str, name: str, dtype: torch.dtype, dims: Sequence[int], keepdim: bool) -> str:
    """ReduceMax or ReduceMin; NaN where one element is: ONNX says nothing of NaN, which engines leave out or keep by where it stands."""
    found = reduced(w, kind, name, dims, keepdim)
    if dtype not in FLOATS or not dims:
        return found
    if kind in w.traits.not_for_special:  # they begin with the least finite number
        least = w.constant(-math.inf if kind == "ReduceMax" else math.inf, dtype)
        others = _counted(w, w.op("Not", w.op("Equal", name, least)), dims, keepdim)
        found = w.op("Where", w.op("Greater", others, w.constant(0, torch.int64)), found, least)
    return w.op("Where", some_nan(w, name, dims, keepdim), w.constant(math.nan, dtype), found)


def some_nan(w: Writer, name: str, dims: Sequence[int], keepdim: bool) -> str:
    """Whether there is a NaN over dims."""
    return w.op("Greater", _counted(w, w.op("IsNaN", name), dims, keepdim), w.constant(0, torch.int64))


def _extreme(kind: str) -> Any:
    def write(w: Writer, out: Any, x: Value, dims: Any, keepdim: bool) -> str:
        if x.dtype is torch.bool:
            return w.cast(reduced(w, kind, w.cast(x.name, torch.int32), dims, keepdim), torch.bool)
        return extreme_over(w, kind, x.name, x.dtype, dims, keepdim)

    return write


row("amax")(_extreme("ReduceMax"))
row("amin")(_extreme("ReduceMin"))


def _counted(w: Writer, truths: str, dims: Sequence[int], keepdim: bool) -> str:
    return reduced(w, "ReduceSum", w.cast(truths, torch.int64), dims, keepdim)


def _some(w: Writer, x: Value, dims: Sequence[int], keepdim: bool) -> str:
    return w.op("Greater", _counted(w, truth(w, x), dims, keepdim), w.constant(0, torch.int64))


@row("any")
def _any(w: Writer, out: Any, x: Value, dims: Any, keepdim: bool) -> str:
    return _some(w, x, dims, keepdim)


@row("all")
def _all(w: Writer, out: Any, x: Value, dims: Any, keepdim: bool) -> str:
    return w.op("Equal", _counted(w, w.op("Not", truth(w, x)), dims, keepdim), w.constant(0, torch.int64))


@row("count_nonzero")
def _count_nonzero(w: Writer, out: Any, x: Value, dims: Any) -> str:
    return _counted(w, truth(w, x), dims, False)


def _position(kind: str) -> Any:
    def write(w: Writer, out: Any, x: Value, dim: int, keepdim: bool) -> str:
        if x.ndim == 0:
            return w.constant(0, torch.int64)
        name = x.name if x.dtype is not torch.bool else w.cast(x.name, torch.int32)
        found = w.op(kind, name, axis=dim, keepdims=int(keepdim))
        if x.dtype not in FLOATS:
            return found
        nan = w.cast(w.op("IsNaN", name), torch.int32)
        has_nan = w.op("Greater", w.op("ReduceMax", nan, w.ints(dim), keepdims=int(keepdim)), w.constant(0, torch.int32))
        return w.op("Where", has_nan, w.op("ArgMax", nan, axis=dim, keepdims=int(keepdim)), found)

    return write


row("argmax")(_position("ArgMax"))
row("argmin")(_position("ArgMin"))


@row("var_mean")
def _var_mean(w: Writer, out: Any, x: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[str, str]:
    floats_only(x.dtype)
    if not dims:
        raise Refused("a variance over no dims")
    n = count(x.spec, dims)
    mean = reduced(w, "ReduceMean", x.name, dims, True)
    centred = w.op("Sub", x.name, mean)
    total = reduced(w, "ReduceSum", w.op("Mul", centred, centred), dims, keepdim)
    if isinstance(n, int):
        below = w.constant(max(n - correction, 0), x.dtype)
    else:
        below = w.op("Sub", w.operand(n, x.dtype), w.constant(correction, x.dtype))
        if bounds(n)[0] < correction:
            below = w.op("Max", below, w.constant(0, x.dtype))
    if not keepdim:
        mean = w.op("Squeeze", mean, w.ints(*dims))
    # eager's running mean is NaN from an infinite element on
    return w.op("Div", total, below), w.op("Where", w.op("IsNaN", total), total, mean)


@row("logsumexp")
def _logsumexp(w: Writer, out: Any, x: Value, dims: Any, keepdim: bool) -> str:
    """An infinite largest element is left where it is: its difference with itself is no number."""
    floats_only(x.dtype)
    if not dims:
        return x.name
    largest = extreme_over(w, "ReduceMax", x.name, x.dtype, dims, True)
    infinite = w.op("Equal", w.op("Abs", largest), w.constant(math.inf, x.dtype))
    base = w.op("Where", infinite, w.constant(0, x.dtype), largest)
    total = w.op("Log", reduced(w, "ReduceSum", exponential(w, w.op("Sub", x.name, base)), dims, keepdim))
    return w.op("Add", total, base if keepdim else w.op("Squeeze", base, w.ints(*dims)))


@row("norm")
def _norm(w: Writer, out: Any, x: Value, ord: Any, dims: Any, keepdim: bool) -> str:
    floats_only(x.dtype)
    if not dims:
        raise Refused("a norm over no dims")
    size = w.op("Abs", x.name)
    if ord in (math.inf, -math.inf):
        return extreme_over(w, "ReduceMax" if ord > 0 else "ReduceMin", size, x.dtype, dims, keepdim)
    if ord == 0:
        some = w.op("Not", w.op("Equal", size, w.constant(0, x.dtype)))
        return w.cast(_counted(w, some, dims, keepdim), x.dtype)
    if ord == 1:
        return reduced(w, "ReduceSum", size, dims, keepdim)
    if ord == 2:
        return w.op("Sqrt", reduced(w, "ReduceSum", w.op("Mul", size, size), dims, keepdim))
    power = w.op("Pow", size, w.constant(ord, x.dtype))
    return w.op("Pow", reduced(w, "ReduceSum", power, dims, keepdim), w.constant(1 / ord, x.dtype))


@row("cumsum")
def _cumsum(w: Writer, out: Any, x: Value, dim: int) -> str:
    if x.dtype is torch.bool:
        raise Refused("a running sum of bools")
    return x.name if x.ndim == 0 else w.op("CumSum", x.name, w.constant(dim, torch.int64))
