"""Fake quantization: float32 numbers rounded to a grid of integers and back, and a mask of those that the integers hold."""

from __future__ import annotations

import torch

from ..op import PrimValue, prims
from .table import aten, decomposition, overloads_of, to

F32, I64 = torch.float32, torch.int64


def _on_grid(x: PrimValue, scale: PrimValue, zero_point: PrimValue, low: int, high: int) -> tuple[PrimValue, PrimValue]:
    """As eager's kernels: times the reciprocal of the scale, rounded to even, and an integer before the zero point is added."""
    steps = prims.round(prims.mul(x, prims.reciprocal(scale)))
    level = to(prims.add(steps, to(zero_point, F32)), I64)
    held = prims.logical_and(prims.ge(level, low), prims.le(level, high))
    kept = prims.minimum(prims.maximum(level, low), high)
    return prims.mul(to(prims.sub(kept, to(zero_point, I64)), F32), scale), held


def _scalar(value: float, dtype: torch.dtype, like: PrimValue) -> PrimValue:
    return prims.full((), value, dtype, like.device)


@decomposition(aten.fake_quantize_per_tensor_affine_cachemask)
def fake_quantize_per_tensor(
    x: PrimValue, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[PrimValue, PrimValue]:
    if x.dtype is not F32:
        return NotImplemented
    return _on_grid(x, _scalar(scale, F32, x), _scalar(zero_point, I64, x), quant_min, quant_max)


@decomposition(*overloads_of("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "default"))
def fake_quantize_per_tensor_by_tensors(
    x: PrimValue, scale: PrimValue, zero_point: PrimValue, enabled: PrimValue, quant_min: int, quant_max: int
) -> tuple[PrimValue, PrimValue]:
    if x.dtype is not F32 or scale.dtype is not F32 or zero_point.dtype.is_floating_point:
        return NotImplemented
    scale, zero_point, enabled = (prims.reshape(t, ()) for t in (scale, zero_point, enabled))
    quantized, held = _on_grid(x, scale, zero_point, quant_min, quant_max)
    off = prims.eq(enabled, 0)
    return prims.where(off, x, quantized), prims.logical_or(held, off)


@decomposition(aten.fake_quantize_per_channel_affine_cachemask)
def fake_quantize_per_channel(
    x: PrimValue, scale: PrimValue, zero_point: PrimValue, axis: int, quant_min: int, quant_max: int
) -> tuple[PrimValue, PrimValue]:
    if x.dtype is not F32 or scale.dtype is not F32 or zero_point.dtype.is_floating_point:
        return NotImplemented
    sizes = tuple(s if d == axis % x.ndim else 1 for d, s in enumerate(x.sizes))
    return _on_grid(x, prims.reshape(scale, sizes), prims.reshape(zero_point, sizes), quant_min, quant_max)
