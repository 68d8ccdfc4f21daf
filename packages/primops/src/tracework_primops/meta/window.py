"""Result specs of pooling, resampling and patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..broadcasting import channels_last, is_channels_last, is_contiguous
from ..op import Op
from ..spec import TensorSpec, product
from ..symbols import Size, floordiv, minimum
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


def pooled(size: Size, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: bool) -> Size:
    """Number of windows along one dim."""
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return floordiv(reach, stride) + 1
    # a window must begin inside the input or its left padding
    return minimum(floordiv(reach + stride - 1, stride), floordiv(size + padding - 1, stride)) + 1


def suggested(x: TensorSpec, sizes: Sequence[Size], dtype: torch.dtype | None = None) -> TensorSpec:
    """A new tensor in x's memory format (channels last or row-major)."""
    sizes = tuple(sizes)
    last = len(sizes) == len(x.sizes) and is_channels_last(x.sizes, x.strides) and not is_contiguous(x.sizes, x.strides)
    return TensorSpec(dtype or x.dtype, x.device, sizes, channels_last(sizes) if last else None)


def _spatial(x: TensorSpec, count: int) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    return x.sizes[: len(x.sizes) - count], x.sizes[len(x.sizes) - count :]


@rule()
def max_pool(
    x: TensorSpec,
    kernel: Sequence[Size],
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    ceil_mode: bool,
) -> tuple[TensorSpec, TensorSpec]:
    lead, spatial = _spatial(x, len(kernel))
    sizes = [pooled(s, kernel[i], stride[i], padding[i], dilation[i], ceil_mode) for i, s in enumerate(spatial)]
    return suggested(x, (*lead, *sizes)), suggested(x, (*lead, *sizes), torch.int64)


@rule()
def avg_pool(
    x: TensorSpec,
    kernel: Sequence[Size],
    stride: Sequence[Size],
    padding: Sequence[Size],
    ceil_mode: bool,
    include: bool,
    divisor: int | None,
) -> TensorSpec:
    lead, spatial = _spatial(x, len(kernel))
    return suggested(x, (*lead, *[pooled(s, kernel[i], stride[i], padding[i], 1, ceil_mode) for i, s in enumerate(spatial)]))


@rule("max_pool_backward", "avg_pool_backward", "adaptive_avg_pool_backward", "adaptive_max_pool_backward")
def max_pool_backward(grad: TensorSpec, x: TensorSpec, *rest: object) -> TensorSpec:
    return suggested(x, x.sizes)


@rule("reflection_pad_backward", "replication_pad_backward")
def reflection_pad_backward(grad: TensorSpec, x: TensorSpec, padding: Sequence[Size]) -> TensorSpec:
    return suggested(x, x.sizes)


@rule("adaptive_avg_pool")
def adaptive_avg_pool(x: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    return suggested(x, (*_spatial(x, len(sizes))[0], *sizes))


@rule()
def adaptive_max_pool(x: TensorSpec, sizes: Sequence[Size]) -> tuple[TensorSpec, TensorSpec]:
    full = (*_spatial(x, len(sizes))[0], *sizes)
    return suggested(x, full), suggested(x, full, torch.int64)


@rule()
def max_unpool(x: TensorSpec, indices: TensorSpec, sizes: Sequence[Size]) -> TensorSpec:
    full = (*_spatial(x, len(sizes))[0], *sizes)
    return suggested(x, full) if x.device.type == "cpu" else TensorSpec(x.dtype, x.device, full)


@rule("upsample_nearest", "upsample_linear", "upsample_bicubic")
def upsample_nearest(x: TensorSpec, sizes: Sequence[Size], *rest: object) -> TensorSpec:
    return suggested(x, (*x.sizes[:2], *sizes))


@rule("upsample_nearest_backward", "upsample_linear_backward", "upsample_bicubic_backward")
def upsample_nearest_backward(grad: TensorSpec, sizes: Sequence[Size], input_sizes: Sequence[Size], *rest: object) -> TensorSpec:
    return suggested(grad, input_sizes)


@rule()
def grid_sample(x: TensorSpec, grid: TensorSpec, mode: int, padding_mode: int, align_corners: bool) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, (*x.sizes[:2], *grid.sizes[1:-1]))


@rule()
def grid_sample_backward(
    grad: TensorSpec, x: TensorSpec, grid: TensorSpec, m: int, p: int, a: bool, mask: Sequence[bool]
) -> tuple[TensorSpec | None, TensorSpec]:
    return TensorSpec(x.dtype, x.device, x.sizes) if mask[0] else None, TensorSpec(grid.dtype, grid.device, grid.sizes)


@rule()
def im2col(
    x: TensorSpec, kernel: Sequence[Size], dilation: Sequence[Size], padding: Sequence[Size], stride: Sequence[Size]
) -> TensorSpec:
    lead, spatial = _spatial(x, 2)
    counts = [pooled(s, kernel[i], stride[i], padding[i], dilation[i], False) for i, s in enumerate(spatial)]
    return TensorSpec(x.dtype, x.device, (*lead[:-1], lead[-1] * product(kernel), product(counts)))


@rule()
def col2im(x: TensorSpec, sizes: Sequence[Size], kernel: Sequence[Size], *rest: object) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, (*x.sizes[:-2], floordiv(x.sizes[-2], product(kernel)), *sizes))


@rule("reflection_pad", "replication_pad")
def reflection_pad(x: TensorSpec, padding: Sequence[int]) -> TensorSpec:
    sizes = list(x.sizes)
    for i in range(len(padding) // 2):
        sizes[-1 - i] = sizes[-1 - i] + padding[2 * i] + padding[2 * i + 1]
    return suggested(x, sizes)
