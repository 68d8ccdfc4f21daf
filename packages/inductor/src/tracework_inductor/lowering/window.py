"""Pools, paddings by copies and nearest upsampling as indirect-free loops where that is cheap."""

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.index import Size
from ..ir.scalar_ops import ops
from ..ir.views import IndexMap
from .fallback import Refused
from .reduction import accumulator, reduce
from .registry import lowers
from .value import pointwise, settled
from .view import rearranged


@lowers("adaptive_avg_pool")
def adaptive_avg_pool(low: Any, x: Any, sizes: Sequence[Size]) -> Any:
    """A mean over all spatial axes when the result is 1x1; else the library."""
    if any(not (isinstance(s, int) and s == 1) for s in sizes) or not x.dtype.is_floating_point:
        raise Refused("an adaptive pool that does not reduce to one element")
    dims = list(range(x.ndim - len(sizes), x.ndim))
    wide = accumulator(x.dtype)
    total = reduce(low, x, dims, True, "sum", wide, lambda v, _: ops.to_dtype(v, wide))
    count: Size = 1
    for d in dims:
        count = count * x.sizes[d]

    def inner(index: list[Size]) -> Any:
        return ops.to_dtype(ops.div(total.load(index), ops.index_expr(count, wide)), x.dtype)

    return pointwise(total.sizes, x.dtype, x.device, inner, [total], 4)


@lowers("adaptive_avg_pool_backward")
def adaptive_avg_pool_backward(low: Any, grad: Any, x: Any) -> Any:
    """grad / count everywhere when the pool had one element."""
    if any(not (isinstance(s, int) and s == 1) for s in grad.sizes[2 - (4 - grad.ndim) :]):
        raise Refused("an adaptive pool that does not reduce to one element")
    spatial = list(range(2 if grad.ndim > 2 else 1, grad.ndim))
    grad = settled(grad)
    count: Size = 1
    for d in spatial:
        count = count * x.sizes[d]
    wide = accumulator(x.dtype)

    def inner(index: list[Size]) -> Any:
        at = [0 if d in spatial else i for d, i in enumerate(index)]
        value = ops.to_dtype(grad.load(at), wide)
        return ops.to_dtype(ops.div(value, ops.index_expr(count, wide)), x.dtype)

    return pointwise(x.sizes, x.dtype, x.device, inner, [grad], 4)


def _folded(name: str, fold: Any) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, padding: Sequence[int]) -> Any:
        lows = {x.ndim - 1 - k: padding[2 * k] for k in range(len(padding) // 2)}
        if any(not isinstance(s, int) for s in x.sizes):
            raise Refused("padding of symbolic sizes")

        def inner(index: list[Size]) -> Any:
            at = list(index)
            for d, first in lows.items():
                at[d] = ops.indirect(fold(ops.index_expr(index[d] - first, torch.int64), x.sizes[d]), x.sizes[d], False)
            return x.load(at)

        return pointwise(low.spec.sizes, x.dtype, x.device, inner, [x], 6)


def _reflect(position: Any, size: int) -> Any:
    last = ops.constant(size - 1, torch.int64)
    return ops.sub(last, ops.abs(ops.sub(last, ops.abs(position))))


def _clamp(position: Any, size: int) -> Any:
    zero, last = ops.constant(0, torch.int64), ops.constant(size - 1, torch.int64)
    return ops.minimum(ops.maximum(position, zero), last)


_folded("reflection_pad", _reflect)
_folded("replication_pad", _clamp)


@lowers("upsample_nearest")
def upsample_nearest(low: Any, x: Any, sizes: Sequence[Size], scales: Any, exact: bool = False) -> Any:
    """Whole factors only: result index // factor."""
    first = x.ndim - len(sizes)
    factors = []
    for k, size in enumerate(sizes):
        old = x.sizes[first + k]
        if not (isinstance(old, int) and isinstance(size, int) and size % old == 0) or exact:
            raise Refused("nearest upsampling by a factor that is not whole")
        if scales and scales[k] is not None and scales[k] * old != size:
            raise Refused("nearest upsampling by a given scale")
        factors.append(size // old)
    back: IndexMap = lambda index: [*index[:first], *[i // f for i, f in zip(index[first:], factors, strict=True)]]  # noqa: E731
    value = rearranged(x, low.spec.sizes, back, 1)
    value.base = None
    return value
