"""Tensors made from nothing: functions of the index alone."""

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.index import Expr, Size
from ..ir.scalar_ops import IN_BITS, ops
from .fallback import Refused
from .registry import lowers
from .value import pointwise


@lowers("full")
def full(low: Any, sizes: Sequence[Size], value: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """One number everywhere."""
    if isinstance(value, Expr):
        if dtype in IN_BITS:
            raise Refused(f"a size as a {dtype}")
        return pointwise(sizes, dtype, device, lambda index: ops.index_expr(value, dtype), (), 0)
    return pointwise(sizes, dtype, device, lambda index: ops.constant(value, dtype), (), 0)


@lowers("empty")
def empty(low: Any, sizes: Sequence[Size], dtype: torch.dtype, device: torch.device) -> Any:
    """Zeros: whoever reads it before writing must not see a difference."""
    return full(low, sizes, 0, dtype, device)


@lowers("empty_strided")
def empty_strided(low: Any, sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Zeros in this layout."""
    value = full(low, sizes, 0, dtype, device)
    value.strides = tuple(strides)
    return value


@lowers("scalar_tensor")
def scalar_tensor(low: Any, value: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """A 0-dim tensor."""
    return full(low, (), value, dtype, device)


@lowers("iota")
def iota(low: Any, n: Size, start: Any, step: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """start + i * step."""
    integral = not dtype.is_floating_point
    if integral and not isinstance(start, float) and not isinstance(step, float):
        return pointwise((n,), dtype, device, lambda index: ops.index_expr(start + index[0] * step, dtype), (), 0)
    if isinstance(start, Expr) or isinstance(step, Expr):
        raise Refused("a floating range with symbolic bounds")
    wide = torch.float64

    def inner(index: list[Size]) -> Any:
        at = ops.index_expr(index[0], wide)
        value = ops.add(ops.mul(at, ops.constant(step, wide)), ops.constant(start, wide))
        return ops.to_dtype(value, dtype)

    return pointwise((n,), dtype, device, inner, (), 3)


@lowers("eye")
def eye(low: Any, n: Size, m: Size, dtype: torch.dtype, device: torch.device) -> Any:
    """1 on the diagonal."""

    def inner(index: list[Size]) -> Any:
        same = ops.eq(ops.index_expr(index[0], torch.int64), ops.index_expr(index[1], torch.int64))
        return ops.to_dtype(same, dtype)

    return pointwise((n, m), dtype, device, inner, (), 2)
