"""Pooling, resampling, patches and padding.

ATen's forms for 1, 2 and 3 window dims become one prim with complete tuples; inputs without a batch dim get one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..op import Op, PrimValue, prims
from ..symbols import Size
from .table import DECOMPS, Rule, aten, decomposition, overloads_of


def per_dim(value: Any, n: int, default: Any = None) -> tuple[Any, ...]:
    """A window parameter with one number per dim; empty means `default`."""
    if not isinstance(value, Sequence):
        return (value,) * n
    if not len(value):
        return tuple(default)
    return tuple(value) * n if len(value) == 1 else tuple(value)


def _batched(x: PrimValue, n: int) -> PrimValue:
    return prims.unsqueeze(x, 0) if x.ndim == n + 1 else x


def _unbatched(result: PrimValue, x: PrimValue, n: int) -> PrimValue:
    return prims.squeeze(result, (0,)) if x.ndim == n + 1 else result


def _static(*values: Size) -> bool:
    return all(v.__class__ is int for v in values)


# --- pooling


def _max_pool(n: int) -> Rule:
    def rule(
        x: PrimValue,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> tuple[PrimValue, ...]:
        kernel = per_dim(kernel_size, n)
        window = (kernel, per_dim(stride, n, kernel), per_dim(padding, n), per_dim(dilation, n), ceil_mode)
        return tuple(_unbatched(r, x, n) for r in prims.max_pool(_batched(x, n), *window))

    return rule


def _max_pool_backward(n: int) -> Rule:
    def rule(
        grad: PrimValue,
        x: PrimValue,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: PrimValue,
    ) -> PrimValue:
        kernel = per_dim(kernel_size, n)
        window = (kernel, per_dim(stride, n, kernel), per_dim(padding, n), per_dim(dilation, n), ceil_mode)
        out = prims.max_pool_backward(_batched(grad, n), _batched(x, n), *window, _batched(indices, n))
        return _unbatched(out, x, n)

    return rule


def _avg_pool(n: int) -> Rule:
    def rule(
        x: PrimValue,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> PrimValue:
        kernel = per_dim(kernel_size, n)
        window = (kernel, per_dim(stride, n, kernel), per_dim(padding, n), ceil_mode, count_include_pad, divisor_override)
        return _unbatched(prims.avg_pool(_batched(x, n), *window), x, n)

    return rule


def _avg_pool_backward(n: int) -> Rule:
    def rule(
        grad: PrimValue,
        x: PrimValue,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> PrimValue:
        kernel = per_dim(kernel_size, n)
        stride, padding = per_dim(stride, n, kernel), per_dim(padding, n)
        g, y = _batched(grad, n), _batched(x, n)
        if stride == kernel and not any(padding) and _tiles(y.sizes[2:], g.sizes[2:], kernel):
            return _unbatched(_spread(g, kernel, divisor_override), x, n)
        out = prims.avg_pool_backward(g, y, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _unbatched(out, x, n)

    return rule


def _tiles(sizes: Sequence[Size], counts: Sequence[Size], kernel: Sequence[Size]) -> bool:
    """Whether windows of `kernel` cover each input element once."""
    return _static(*sizes, *counts) and all(s == c * k for s, c, k in zip(sizes, counts, kernel))


def _spread(grad: PrimValue, kernel: Sequence[Size], divisor: int | None = None) -> PrimValue:
    """Each gradient divided evenly over its window of the tiled input."""
    count: Size = 1
    for k in kernel:
        count = count * k
    lead, counts = grad.sizes[:2], grad.sizes[2:]
    thin = (*lead, *[v for c in counts for v in (c, 1)])
    full = (*lead, *[v for c, k in zip(counts, kernel) for v in (c, k)])
    scaled = prims.reshape(prims.div(grad, divisor or count), thin)
    return prims.clone(prims.reshape(prims.expand(scaled, full), (*lead, *[c * k for c, k in zip(counts, kernel)])))


def _adaptive_avg_pool(n: int) -> Rule:
    def rule(x: PrimValue, output_size: Sequence[Size] | Sequence[int]) -> PrimValue:
        sizes, y = per_dim(output_size, n), _batched(x, n)
        spatial = y.sizes[2:]
        kernel = tuple(s // c if _static(s, c) and c else 0 for s, c in zip(spatial, sizes))
        if set(kernel) == {1} and _tiles(spatial, sizes, kernel):
            return prims.clone(x)
        if all(kernel) and _tiles(spatial, sizes, kernel):
            return _unbatched(prims.avg_pool(y, kernel, kernel, (0,) * n, False, True, None), x, n)
        return _unbatched(prims.adaptive_avg_pool(y, sizes), x, n)

    return rule


def _adaptive_avg_pool_backward(n: int) -> Rule:
    def rule(grad: PrimValue, x: PrimValue) -> PrimValue:
        g, y = _batched(grad, n), _batched(x, n)
        spatial, counts = y.sizes[2:], g.sizes[2:]
        kernel = tuple(s // c if _static(s, c) and c else 0 for s, c in zip(spatial, counts))
        if all(kernel) and _tiles(spatial, counts, kernel):
            return _unbatched(_spread(g, kernel), x, n)
        return _unbatched(prims.adaptive_avg_pool_backward(g, y), x, n)

    return rule


def _adaptive_max_pool(n: int) -> Rule:
    def rule(x: PrimValue, output_size: Sequence[int]) -> tuple[PrimValue, ...]:
        found = prims.adaptive_max_pool(_batched(x, n), per_dim(output_size, n))
        return tuple(_unbatched(r, x, n) for r in found)

    return rule


def _adaptive_max_pool_backward(n: int) -> Rule:
    def rule(grad: PrimValue, x: PrimValue, indices: PrimValue) -> PrimValue:
        return _unbatched(prims.adaptive_max_pool_backward(*(_batched(v, n) for v in (grad, x, indices))), x, n)

    return rule


# name with {n} -> maker of the rule for n window dims
_POOLS = {
    "max_pool{n}d_with_indices": _max_pool,
    "max_pool{n}d_with_indices_backward": _max_pool_backward,
    "avg_pool{n}d": _avg_pool,
    "avg_pool{n}d_backward": _avg_pool_backward,
    "_adaptive_avg_pool{n}d": _adaptive_avg_pool,
    "_adaptive_avg_pool{n}d_backward": _adaptive_avg_pool_backward,
    "adaptive_avg_pool{n}d": _adaptive_avg_pool,
    "adaptive_max_pool{n}d": _adaptive_max_pool,
    "adaptive_max_pool{n}d_backward": _adaptive_max_pool_backward,
}


@decomposition(aten.max_unpool2d)
def max_unpool2d(x: PrimValue, indices: PrimValue, output_size: Sequence[Size]) -> PrimValue:
    return _unbatched(prims.max_unpool(_batched(x, 2), _batched(indices, 2), tuple(output_size)), x, 2)


# --- resampling


def _nearest(n: int, exact: bool = False) -> Rule:
    return lambda x, output_size, *scales: prims.upsample_nearest(x, tuple(output_size), _scales(scales, n), exact)


def _nearest_backward(n: int, exact: bool = False) -> Rule:
    def rule(grad: PrimValue, output_size: Sequence[Size], input_size: Sequence[Size], *scales: float | None) -> PrimValue:
        return prims.upsample_nearest_backward(grad, tuple(output_size), tuple(input_size), _scales(scales, n), exact)

    return rule


def _scales(scales: Sequence[float | None], n: int) -> tuple[float | None, ...]:
    return (*scales, *[None] * (n - len(scales)))


def _exact(n: int) -> Rule:
    return _nearest(n, True)


def _exact_backward(n: int) -> Rule:
    return _nearest_backward(n, True)


def _linear(n: int) -> Rule:
    def rule(x: PrimValue, output_size: Sequence[Size], align_corners: bool, *scales: float | None) -> PrimValue:
        return prims.upsample_linear(x, tuple(output_size), align_corners, _scales(scales, n))

    return rule


def _linear_backward(n: int) -> Rule:
    def rule(
        grad: PrimValue, output_size: Sequence[Size], input_size: Sequence[Size], align_corners: bool, *scales: float | None
    ) -> PrimValue:
        sizes = (tuple(output_size), tuple(input_size))
        return prims.upsample_linear_backward(grad, *sizes, align_corners, _scales(scales, n))

    return rule


_RESAMPLING = {
    "upsample_nearest{n}d": _nearest,
    "upsample_nearest{n}d_backward": _nearest_backward,
    "_upsample_nearest_exact{n}d": _exact,
    "_upsample_nearest_exact{n}d_backward": _exact_backward,
    "upsample_{linear}{n}d": _linear,
    "upsample_{linear}{n}d_backward": _linear_backward,
}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@decomposition(aten.upsample_bicubic2d)
def upsample_bicubic(x: PrimValue, output_size: Sequence[Size], align_corners: bool, *scales: float | None) -> PrimValue:
    return prims.upsample_bicubic(x, tuple(output_size), align_corners, _scales(scales, 2))


@decomposition(aten.upsample_bicubic2d_backward)
def upsample_bicubic_backward(
    grad: PrimValue, output_size: Sequence[Size], input_size: Sequence[Size], align_corners: bool, *scales: float | None
) -> PrimValue:
    sizes = (tuple(output_size), tuple(input_size))
    return prims.upsample_bicubic_backward(grad, *sizes, align_corners, _scales(scales, 2))


@decomposition(aten.grid_sampler_2d, aten.grid_sampler_3d)
def grid_sampler(x: PrimValue, grid: PrimValue, interpolation_mode: int, padding_mode: int, align_corners: bool) -> PrimValue:
    return prims.grid_sample(x, grid, interpolation_mode, padding_mode, align_corners)


@decomposition(aten.grid_sampler_2d_backward, aten.grid_sampler_3d_backward)
def grid_sampler_backward(
    grad: PrimValue,
    x: PrimValue,
    grid: PrimValue,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[PrimValue | None, ...]:
    return prims.grid_sample_backward(grad, x, grid, interpolation_mode, padding_mode, align_corners, output_mask)


# --- patches and shuffles


@decomposition(aten.im2col)
def im2col(
    x: PrimValue, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> PrimValue:
    window = (per_dim(v, 2) for v in (kernel_size, dilation, padding, stride))
    y = _batched(x, 2)
    return _unbatched(prims.im2col(y, *window), x, 2)


@decomposition(aten.col2im)
def col2im(
    x: PrimValue,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> PrimValue:
    window = (per_dim(v, 2) for v in (kernel_size, dilation, padding, stride))
    y = prims.unsqueeze(x, 0) if x.ndim == 2 else x
    out = prims.col2im(y, tuple(output_size), *window)
    return prims.squeeze(out, (0,)) if x.ndim == 2 else out


@decomposition(aten.pixel_shuffle)
def pixel_shuffle(x: PrimValue, upscale_factor: int) -> PrimValue:
    r = upscale_factor
    *lead, c, h, w = x.sizes
    n = len(lead)
    split = prims.reshape(x, (*lead, c // (r * r), r, r, h, w))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return prims.clone(prims.reshape(prims.permute(split, order), (*lead, c // (r * r), h * r, w * r)))


@decomposition(aten.pixel_unshuffle)
def pixel_unshuffle(x: PrimValue, downscale_factor: int) -> PrimValue:
    r = downscale_factor
    *lead, c, h, w = x.sizes
    n = len(lead)
    split = prims.reshape(x, (*lead, c, h // r, r, w // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return prims.clone(prims.reshape(prims.permute(split, order), (*lead, c * r * r, h // r, w // r)))


@decomposition(*overloads_of("channel_shuffle", "default"), *overloads_of("native_channel_shuffle", "default"))
def channel_shuffle(x: PrimValue, groups: Size) -> PrimValue:
    n, c, *rest = x.sizes
    split = prims.reshape(x, (n, groups, c // groups, *rest))
    order = (0, 2, 1, *range(3, x.ndim + 1))
    return prims.clone(prims.reshape(prims.permute(split, order), x.sizes))


# --- padding that reads x


def _pad(prim: Op) -> Rule:
    return lambda n: lambda x, padding: prim(x, tuple(padding))


def _pad_backward(prim: Op) -> Rule:
    return lambda n: lambda grad, x, padding: prim(grad, x, tuple(padding))


_PADDING = {
    "reflection_pad{n}d": _pad(prims.reflection_pad),
    "reflection_pad{n}d_backward": _pad_backward(prims.reflection_pad_backward),
    "replication_pad{n}d": _pad(prims.replication_pad),
    "replication_pad{n}d_backward": _pad_backward(prims.replication_pad_backward),
}

for _name, _maker in (_POOLS | _RESAMPLING | _PADDING).items():
    for _n in (1, 2, 3):
        for _overload in overloads_of(_name.format(n=_n, linear=_LINEAR[_n]), "default"):
            DECOMPS[_overload] = _maker(_n)
