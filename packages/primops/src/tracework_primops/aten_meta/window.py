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
from .rows import at_least, fresh, like_self, row, suggests_channels_last, symbolic

Sizes = Sequence[Size]


def _pair(values: Sequence[Any], i: int, default: Any = None) -> Any:
    if not values:
        return default
    return values[i] if len(values) > 1 else values[0]


def _check(kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
    """Raises RuntimeError for windows that eager refuses."""
    if kernel <= 0 or stride <= 0 or dilation <= 0:
        raise RuntimeError(
            f"kernel size, stride and dilation should be greater than zero, but got {kernel}, {stride}, {dilation}"
        )
    if padding < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {padding}")
    if padding > ((kernel - 1) * dilation + 1) // 2:
        raise RuntimeError(
            f"pad should be at most half of effective kernel size, but got pad={padding}, kernel_size={kernel} and dilation={dilation}"
        )


def _check_lengths(**arguments: Sequence[Size]) -> None:
    for name, values in arguments.items():
        if len(values) > 2 or (not len(values) and name != "stride"):
            raise RuntimeError(f"{name} must either be a single int, or a tuple of two ints")


def _laid_out(x: TensorSpec, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorSpec:
    strides = broadcasting.channels_last(sizes) if suggests_channels_last(x) else contiguous(sizes)
    return TensorSpec(dtype or x.dtype, x.device, sizes, strides, 0)


def _pool_sizes(x: TensorSpec, window: Sequence[Sequence[Size]], ceil_mode: bool, dims: int) -> tuple[Size, ...]:
    """`window` are the sizes, strides, paddings and dilations. Raises RuntimeError where nothing is left."""
    out = list(x.sizes)
    for i in range(dims):
        place, kernel = x.ndim - dims + i, _pair(window[0], i)
        each = kernel, _pair(window[1], i, kernel), _pair(window[2], i, 0), _pair(window[3], i, 1)
        if dims == 2:
            _check(*each)
        out[place] = pooled(x.sizes[place], *each, ceil_mode)
        if not at_least(1, out[place]):
            raise RuntimeError(f"Given input size {list(x.sizes)}: calculated output size {out}: output size is too small")
    return tuple(out)


def _pooled_images(x: TensorSpec, window: Sequence[Sequence[Size]], ceil_mode: bool) -> TensorSpec:
    _check_lengths(**dict(zip(("kernel_size", "stride", "padding", "dilation"), window)))
    if x.ndim not in (3, 4) or any(s.__class__ is int and s == 0 for s in x.sizes[-3:]):
        raise RuntimeError(f"Expected 3D or 4D tensor with optional 0 dim batch size for input, but got: {list(x.sizes)}")
    return _laid_out(x, _pool_sizes(x, window, ceil_mode, 2))


@row("max_pool2d_with_indices.default")
def max_pool2d(
    x: TensorSpec, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), dilation: Sizes = (1,), ceil_mode: bool = False
) -> tuple[Any, ...]:
    found = _pooled_images(x, (kernel, stride, padding, dilation), ceil_mode)
    return found, found.replace(dtype=torch.int64)


@symbolic("max_pool3d_with_indices.default")
def max_pool3d(
    x: TensorSpec, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), dilation: Sizes = (1,), ceil_mode: bool = False
) -> tuple[Any, ...]:
    sizes = _pool_sizes(x, (kernel, stride, padding, dilation), ceil_mode, 3)
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


@symbolic("avg_pool3d.default")
def avg_pool3d(
    x: TensorSpec, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), ceil_mode: bool = False, *rest: Any
) -> TensorSpec:
    return fresh(x, _pool_sizes(x, (kernel, stride, padding, (1,)), ceil_mode, 3))


@row("max_pool2d_with_indices_backward.default", "avg_pool2d_backward.default", "_adaptive_avg_pool2d_backward.default")
def pool2d_backward(grad: TensorSpec, x: TensorSpec, *window: Any) -> TensorSpec:
    return _laid_out(x, x.sizes)


@symbolic("fractional_max_pool3d.default")
def fractional_max_pool3d(
    x: TensorSpec, kernel_size: Sequence[Size], output_size: Sequence[Size], random_samples: TensorSpec
) -> tuple[Any, ...]:
    for i in range(3):
        if not active.decide("<=", output_size[i] + kernel_size[i] - 1, x.sizes[x.ndim - 3 + i]):
            raise RuntimeError(f"fractional_max_pool3d: {output_size} windows of {kernel_size} do not fit into {x}")
    sizes = (*x.sizes[:-3], *output_size)
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


@row("fractional_max_pool3d_backward.default")
def fractional_max_pool3d_backward(grad: TensorSpec, x: TensorSpec, *rest: Any) -> TensorSpec:
    return fresh(x, x.sizes)


@row("avg_pool2d.default")
def avg_pool2d(
    x: TensorSpec,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> TensorSpec:
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")
    return _pooled_images(x, (kernel, stride, padding, (1,)), ceil_mode)


@row("_adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x: TensorSpec, output_size: Sequence[Size]) -> TensorSpec:
    return _laid_out(x, (*x.sizes[:-2], *output_size))


@row("max_unpool2d.default")
def max_unpool2d(x: TensorSpec, indices: TensorSpec, output_size: Sequence[Size]) -> TensorSpec:
    if len(x.sizes) != len(indices.sizes) or not all(active.equal(a, b) for a, b in zip(x.sizes, indices.sizes)):
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(x.sizes)}) but got {list(indices.sizes)}"
        )
    sizes = (*x.sizes[:-2], *output_size)
    return _laid_out(x, sizes) if x.device.type == "cpu" else fresh(x, sizes)


def _check_adaptive(x: TensorSpec, output_size: Sequence[Any], dims: int) -> None:
    if len(output_size) != dims or x.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"adaptive_max_pool{dims}d(): output_size must have {dims} elements and the input {dims + 1} or {dims + 2} dims"
        )
    if any(s.__class__ is int and s == 0 for s in x.sizes[-dims - 1 :]):
        raise RuntimeError(f"adaptive_max_pool{dims}d(): Expected input to have non-zero size for non-batch dimensions")
    if any(s.__class__ is int and s < 0 for s in output_size):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {[*x.sizes[:-dims], *output_size]}")


@row("adaptive_max_pool2d.default")
def adaptive_max_pool2d(x: TensorSpec, output_size: Sequence[Size]) -> tuple[Any, ...]:
    _check_adaptive(x, output_size, 2)
    sizes = (*x.sizes[:-2], *output_size)
    return _laid_out(x, sizes), _laid_out(x, sizes, torch.int64)


@row("adaptive_max_pool3d.default")
def adaptive_max_pool3d(x: TensorSpec, output_size: Sequence[Size]) -> tuple[Any, ...]:
    _check_adaptive(x, output_size, 3)
    sizes = (*x.sizes[:-3], *output_size)
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


UPSAMPLE = (
    "upsample_nearest1d _upsample_nearest_exact1d upsample_linear1d "
    "upsample_nearest2d _upsample_nearest_exact2d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "upsample_nearest3d _upsample_nearest_exact3d upsample_trilinear3d"
).split()


@row(*(f"{name}.default" for name in UPSAMPLE))
def upsample(x: TensorSpec, output_size: Sequence[Size], *rest: Any) -> TensorSpec:
    if x.ndim != len(output_size) + 2:
        raise RuntimeError(f"It is expected input_size equals to {len(output_size) + 2}, but got size {x.ndim}")
    if any(s.__class__ is int and s <= 0 for s in (*x.sizes[1:], *output_size)):
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got {list(x.sizes)} and {list(output_size)}")
    return _laid_out(x, (*x.sizes[:2], *output_size))


@row(*(f"{name}_backward.default" for name in UPSAMPLE))
def upsample_backward(grad: TensorSpec, output_size: Sequence[Size], input_size: Sequence[Size], *rest: Any) -> TensorSpec:
    return _laid_out(grad, tuple(input_size))


GRID_CUBIC = 2


def _check_grid(x: TensorSpec, grid: TensorSpec, interpolation: int) -> None:
    """Raises RuntimeError as eager does."""
    if x.ndim != grid.ndim or x.ndim not in (4, 5) or x.dtype is not grid.dtype:
        raise RuntimeError(f"grid_sampler(): expected input and grid of one dtype with 4 or 5 dims, but got {x} and {grid}")
    if not active.equal(x.sizes[0], grid.sizes[0]) or not active.equal(grid.sizes[-1], x.ndim - 2):
        raise RuntimeError(f"grid_sampler(): a grid of {grid} does not fit an input of {x}")
    if any(s.__class__ is int and s == 0 for s in x.sizes[2:]):
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but got {x}")
    if x.ndim == 5 and interpolation == GRID_CUBIC:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


@row("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(x: TensorSpec, grid: TensorSpec, interpolation: int, padding: int, align_corners: bool) -> TensorSpec:
    """torch's own rule for two dims is a decomposition that imports its compiler."""
    _check_grid(x, grid, interpolation)
    return fresh(x, (*x.sizes[:2], *grid.sizes[1:-1]))


@symbolic("grid_sampler_2d_backward.default", "grid_sampler_3d_backward.default")
def grid_sampler_backward(grad: TensorSpec, x: TensorSpec, grid: TensorSpec, interpolation: int, *rest: Any) -> tuple[Any, ...]:
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


def _replicated(sizes: Sequence[Any], padding: Sequence[Size]) -> tuple[Any, ...] | None:
    """The sizes after padding dims from the last; None when the padding does not fit."""
    low, high = padding[::2], padding[1::2]
    dims = len(low)
    inner = sizes[-dims:]
    if len(high) != dims or len(sizes) - dims not in (1, 2) or 0 in sizes:
        return None
    grown = tuple(s + a + b for s, a, b in zip(inner, reversed(low), reversed(high)))
    return (*sizes[:-dims], *grown) if all(s > 0 for s in grown) else None


def _reflected(sizes: Sequence[Any], padding: Sequence[Size]) -> tuple[Any, ...] | None:
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
