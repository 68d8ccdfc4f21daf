"""ATen rows: pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import broadcasting
from ..elementwise import contiguous
from ..meta.window import pooled
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Size
from .rows import Results, at_least, check, fresh, like_self, names, row, row_major, same_sizes, suggests_channels_last, symbolic

Sizes = Sequence[Size]


def _pair(values: Sequence[Any], i: int, default: Any = None) -> Any:
    if not values:
        return default
    return values[i] if len(values) > 1 else values[0]


def _check(kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
    """Windows that eager takes."""
    check(kernel > 0 and stride > 0 and dilation > 0)
    check(0 <= padding <= ((kernel - 1) * dilation + 1) // 2)


def _has_empty(x: TensorSpec, dims: int) -> bool:
    """Whether one of the last dims has no elements; open sizes have."""
    return any(s.__class__ is int and s == 0 for s in x.sizes[-dims:])


def _laid_out(x: TensorSpec, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorSpec:
    strides = broadcasting.channels_last(sizes) if suggests_channels_last(x) else contiguous(sizes)
    return TensorSpec(dtype or x.dtype, x.device, sizes, strides, 0)


def _pool_sizes(x: TensorSpec, window: Sequence[Sizes], ceil_mode: bool, dims: int) -> tuple[Size, ...]:
    """`window` are the sizes, strides, paddings and dilations."""
    out = list(x.sizes)
    for i in range(dims):
        place, kernel = x.ndim - dims + i, _pair(window[0], i)
        each = kernel, _pair(window[1], i, kernel), _pair(window[2], i, 0), _pair(window[3], i, 1)
        if dims == 2:
            _check(*each)
        out[place] = pooled(x.sizes[place], *each, ceil_mode)
        check(at_least(1, out[place]))
    return tuple(out)


def _pooled_images(x: TensorSpec, window: Sequence[Sizes], ceil_mode: bool) -> TensorSpec:
    check(all(len(values) in ((0, 1, 2) if place == 1 else (1, 2)) for place, values in enumerate(window)))
    check(x.ndim in (3, 4) and not _has_empty(x, 3))
    return _laid_out(x, _pool_sizes(x, window, ceil_mode, 2))


@row("max_pool2d_with_indices.default", reads="self kernel_size stride padding dilation ceil_mode")
def max_pool2d(x: TensorSpec, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool) -> Results:
    found = _pooled_images(x, (kernel, stride, padding, dilation), ceil_mode)
    return found, found.replace(dtype=torch.int64)


@symbolic("max_pool3d_with_indices.default", reads="self kernel_size stride padding dilation ceil_mode")
def max_pool3d(x: TensorSpec, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool) -> Results:
    sizes = _pool_sizes(x, (kernel, stride, padding, dilation), ceil_mode, 3)
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


@symbolic("avg_pool3d.default", reads="self kernel_size stride padding ceil_mode")
def avg_pool3d(x: TensorSpec, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool) -> TensorSpec:
    return fresh(x, _pool_sizes(x, (kernel, stride, padding, (1,)), ceil_mode, 3))


row(*names("max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward", "default"), reads="self")(
    lambda x: _laid_out(x, x.sizes)
)
row("fractional_max_pool3d_backward.default", reads="self")(row_major)


@symbolic("fractional_max_pool3d.default")
def fractional_max_pool3d(x: TensorSpec, kernel_size: Sizes, output_size: Sizes, random_samples: TensorSpec) -> Results:
    for i in range(3):
        check(active.decide("<=", output_size[i] + kernel_size[i] - 1, x.sizes[x.ndim - 3 + i]))
    sizes = (*x.sizes[:-3], *output_size)
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


@row("avg_pool2d.default", reads="self kernel_size stride padding ceil_mode divisor_override")
def avg_pool2d(x: TensorSpec, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, divisor: int | None) -> TensorSpec:
    check(divisor != 0)
    return _pooled_images(x, (kernel, stride, padding, (1,)), ceil_mode)


@row("_adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x: TensorSpec, output_size: Sizes) -> TensorSpec:
    return _laid_out(x, (*x.sizes[:-2], *output_size))


@row("max_unpool2d.default")
def max_unpool2d(x: TensorSpec, indices: TensorSpec, output_size: Sizes) -> TensorSpec:
    check(same_sizes(x.sizes, indices.sizes))
    sizes = (*x.sizes[:-2], *output_size)
    return _laid_out(x, sizes) if x.device.type == "cpu" else fresh(x, sizes)


def _check_adaptive(x: TensorSpec, output_size: Sequence[Any], dims: int) -> None:
    check(len(output_size) == dims and x.ndim in (dims + 1, dims + 2) and not _has_empty(x, dims + 1))
    check(not any(s.__class__ is int and s < 0 for s in output_size))


@row("adaptive_max_pool2d.default")
def adaptive_max_pool2d(x: TensorSpec, output_size: Sizes) -> Results:
    _check_adaptive(x, output_size, 2)
    sizes = (*x.sizes[:-2], *output_size)
    return _laid_out(x, sizes), _laid_out(x, sizes, torch.int64)


@row("adaptive_max_pool3d.default")
def adaptive_max_pool3d(x: TensorSpec, output_size: Sizes) -> Results:
    _check_adaptive(x, output_size, 3)
    sizes = (*x.sizes[:-3], *output_size)
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


UPSAMPLE = (
    "upsample_nearest1d _upsample_nearest_exact1d upsample_linear1d "
    "upsample_nearest2d _upsample_nearest_exact2d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "upsample_nearest3d _upsample_nearest_exact3d upsample_trilinear3d"
)


@row(*names(UPSAMPLE, "default"))
def upsample(x: TensorSpec, output_size: Sizes, *rest: Any) -> TensorSpec:
    check(x.ndim == len(output_size) + 2)
    check(not any(s.__class__ is int and s <= 0 for s in (*x.sizes[1:], *output_size)))
    return _laid_out(x, (*x.sizes[:2], *output_size))


@row(*(f"{name}_backward.default" for name in UPSAMPLE.split()))
def upsample_backward(grad: TensorSpec, output_size: Sizes, input_size: Sizes, *rest: Any) -> TensorSpec:
    return _laid_out(grad, tuple(input_size))


GRID_CUBIC = 2


def _check_grid(x: TensorSpec, grid: TensorSpec, interpolation: int) -> None:
    check(x.ndim == grid.ndim and x.ndim in (4, 5) and x.dtype is grid.dtype and not _has_empty(x, x.ndim - 2))
    check(active.equal(x.sizes[0], grid.sizes[0]) and active.equal(grid.sizes[-1], x.ndim - 2))
    check(x.ndim == 4 or interpolation != GRID_CUBIC)


@row("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(x: TensorSpec, grid: TensorSpec, interpolation: int, padding: int, align_corners: bool) -> TensorSpec:
    """torch's own rule for two dims is a decomposition that imports its compiler."""
    _check_grid(x, grid, interpolation)
    return fresh(x, (*x.sizes[:2], *grid.sizes[1:-1]))


@symbolic("grid_sampler_2d_backward.default", "grid_sampler_3d_backward.default")
def grid_sampler_backward(grad: TensorSpec, x: TensorSpec, grid: TensorSpec, interpolation: int, *rest: Any) -> Results:
    _check_grid(x, grid, interpolation)
    return fresh(x, x.sizes) if rest[-1][0] else None, like_self(grid)


def _on_channels_last(sizes_of: Callable[..., Any]) -> Callable[..., Any]:
    """What the CPU's kernels do with channels-last images: the result has their layout. The rest is left to torch's meta kernel."""

    def rule(x: TensorSpec, *arguments: Any) -> Any:
        if x.device.type != "cpu" or x.is_symbolic or not suggests_channels_last(x):
            return NotImplemented
        sizes = sizes_of(x.sizes, *arguments)
        if sizes is None:
            return NotImplemented
        return TensorSpec(x.dtype, x.device, sizes, broadcasting.channels_last(sizes), 0)

    return rule


def _replicated(sizes: Sequence[Any], padding: Sizes) -> tuple[Any, ...] | None:
    """The sizes after padding dims from the last; None when the padding does not fit."""
    low, high = padding[::2], padding[1::2]
    dims = len(low)
    inner = sizes[-dims:]
    if len(high) != dims or len(sizes) - dims not in (1, 2) or 0 in sizes:
        return None
    grown = tuple(s + a + b for s, a, b in zip(inner, reversed(low), reversed(high)))
    return (*sizes[:-dims], *grown) if all(s > 0 for s in grown) else None


def _reflected(sizes: Sequence[Any], padding: Sizes) -> tuple[Any, ...] | None:
    """As _replicated, of at most what there is to reflect."""
    dims = len(padding) // 2
    if not all(p < s for pair in (padding[::2], padding[1::2]) for p, s in zip(reversed(pair), sizes[-dims:])):
        return None
    return _replicated(sizes, padding)


def _shuffled(sizes: Sequence[Any], factor: int) -> tuple[Any, ...] | None:
    n, c, h, w = sizes if len(sizes) == 4 else (0, 0, 0, 0)
    return (n, c // factor**2, h * factor, w * factor) if c and factor > 0 and c % factor**2 == 0 else None


def _unshuffled(sizes: Sequence[Any], factor: int) -> tuple[Any, ...] | None:
    n, c, h, w = sizes if len(sizes) == 4 else (0, 0, 0, 0)
    return (n, c * factor**2, h // factor, w // factor) if c and factor > 0 and h % factor == 0 == w % factor else None


for _dims in "2d", "3d":
    row(f"reflection_pad{_dims}.default")(_on_channels_last(_reflected))
    row(f"replication_pad{_dims}.default")(_on_channels_last(_replicated))
row("pixel_shuffle.default")(_on_channels_last(_shuffled))
row("pixel_unshuffle.default")(_on_channels_last(_unshuffled))
row("channel_shuffle.default")(_on_channels_last(lambda sizes, groups: sizes if groups > 0 and sizes[1] % groups == 0 else None))
