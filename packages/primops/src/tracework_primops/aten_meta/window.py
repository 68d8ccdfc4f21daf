"""ATen rows: pooling."""

from __future__ import annotations

import torch

from .. import broadcasting
from ..spec import TensorSpec
from ..symbols.expr import floordiv
from .rows import contiguous, fresh, row, suggests_channels_last


def _pair(values, i, default=None):
    if not values:
        return default
    return values[i] if len(values) > 1 else values[0]


def _pooled(size, kernel, stride, padding, dilation, ceil_mode):
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (floordiv(reach + stride - 1, stride) if ceil_mode else floordiv(reach, stride)) + 1
    if ceil_mode and out.__class__ is int and (out - 1) * stride >= size + padding:
        out -= 1
    return out


def _laid_out(x, sizes, dtype=None):
    strides = broadcasting.channels_last(sizes) if len(sizes) == 4 and suggests_channels_last(x) else contiguous(sizes)
    return TensorSpec(dtype or x.dtype, x.device, sizes, strides, 0)


def _pool_sizes(x, kernel, stride, padding, dilation, ceil_mode):
    out = list(x.sizes)
    for i in range(2):
        k = _pair(kernel, i)
        size = x.sizes[x.ndim - 2 + i]
        out[x.ndim - 2 + i] = _pooled(size, k, _pair(stride, i, k), _pair(padding, i, 0), _pair(dilation, i, 1), ceil_mode)
    return tuple(out)


@row("max_pool2d_with_indices.default")
def max_pool2d(x, kernel_size, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
    sizes = _pool_sizes(x, kernel_size, stride, padding, dilation, ceil_mode)
    return _laid_out(x, sizes), _laid_out(x, sizes, torch.int64)


@row("max_pool2d_with_indices_backward.default")
def max_pool2d_backward(grad, x, kernel_size, stride, padding, dilation, ceil_mode, indices):
    return _laid_out(x, x.sizes)


@row("fractional_max_pool3d_backward.default")
def fractional_max_pool3d_backward(grad, x, kernel_size, output_size, indices):
    return fresh(x, x.sizes)


@row("avg_pool2d.default")
def avg_pool2d(x, kernel_size, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None):
    return _laid_out(x, _pool_sizes(x, kernel_size, stride, padding, (1,), ceil_mode))


@row("avg_pool2d_backward.default")
def avg_pool2d_backward(grad, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    return _laid_out(x, x.sizes)


@row("_adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x, output_size):
    return _laid_out(x, (*x.sizes[:-2], *output_size))


@row("_adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool2d_backward(grad, x):
    return _laid_out(x, x.sizes)
