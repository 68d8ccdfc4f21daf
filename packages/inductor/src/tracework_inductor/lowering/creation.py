"""Tensors made from nothing: functions of the index alone."""

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.index import Expr, Size, same
from ..ir.scalar_ops import IN_BITS, ops
from .registry import Refused, lowers
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


def _spaced(start: Any, end: Any, steps: Size, dtype: torch.dtype) -> Any:
    """index -> the number there: counted from the nearer end, as eager's kernels do."""
    if dtype not in (torch.float32, torch.float64):
        raise Refused(f"eager's rounding of each step in {dtype}")
    if not isinstance(steps, int) or isinstance(start, Expr) or isinstance(end, Expr):
        raise Refused("numbers between open ends")
    first, last = (torch.tensor(v, dtype=dtype) for v in (start, end))
    step = ((last - first) / max(1, steps - 1)).item()

    def inner(index: list[Size]) -> Any:
        number = lambda v: ops.constant(v, dtype)
        near = ops.fma(ops.index_expr(index[0], dtype), number(step), number(first.item()))
        far = ops.fma(ops.index_expr(steps - 1 - index[0], dtype), number(-step), number(last.item()))
        half = ops.lt(ops.index_expr(index[0], torch.int64), ops.constant(steps // 2, torch.int64))
        return ops.where(half, near, far)

    return inner


@lowers("linspace")
def linspace(low: Any, start: Any, end: Any, steps: Size, dtype: torch.dtype, device: torch.device) -> Any:
    """Equal steps."""
    if same(steps, 1):
        return full(low, (1,), start, dtype, device)
    return pointwise((steps,), dtype, device, _spaced(start, end, steps, dtype), (), 4)


@lowers("logspace")
def logspace(low: Any, start: Any, end: Any, steps: Size, base: float, dtype: torch.dtype, device: torch.device) -> Any:
    """Powers of base with such exponents."""
    exponent = _spaced(start, start if same(steps, 1) else end, steps, dtype)
    return pointwise((steps,), dtype, device, lambda index: ops.pow(ops.constant(base, dtype), exponent(index)), (), 16)


@lowers("eye")
def eye(low: Any, n: Size, m: Size, dtype: torch.dtype, device: torch.device) -> Any:
    """1 on the diagonal."""

    def inner(index: list[Size]) -> Any:
        same = ops.eq(ops.index_expr(index[0], torch.int64), ops.index_expr(index[1], torch.int64))
        return ops.to_dtype(same, dtype)

    return pointwise((n, m), dtype, device, inner, (), 2)
