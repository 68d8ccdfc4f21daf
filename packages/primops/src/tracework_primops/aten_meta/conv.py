"""ATen rows: convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._torch import onednn_convolves
from ..broadcasting import channels_last
from ..elementwise import contiguous
from ..errors import FakeTensorError
from ..meta.conv import convolved
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Expr, Size
from .rows import Given, Results, at_least, check, fresh, row, same_sizes, suggests_channels_last
from .view import unsqueeze

WINDOW = "stride padding dilation transposed output_padding groups"


def _at_least(least: int, values: Sequence[Size]) -> bool:
    return all(v.__class__ is not int or v >= least for v in values)


def _sizes(x: TensorSpec, weight: TensorSpec, *window: Any) -> tuple[Size, ...]:
    """Raises FakeTensorError for a transposed one's result without elements."""
    *_, transposed, _, groups = window
    check(active.equal(x.sizes[1], weight.sizes[0] if transposed else weight.sizes[1] * groups))
    sizes, room = convolved(x.sizes, weight.sizes, *window)
    for each in room:
        check(at_least(0, each))
        if transposed and not at_least(1, each):  # some of eager's kernels refuse it, others give nothing
            raise FakeTensorError(f"a transposed convolution of {list(x.sizes)} whose result is empty")
    return sizes


def _keeps_channels_last(x: TensorSpec, weight: TensorSpec, window: tuple[Any, ...]) -> bool:
    """Whether results are in channels-last; `window` is all that follows the bias.

    Signals are images of one row, which are made row-major: they say otherwise only where a size of 1 has any stride.
    Of the CPU's kernels for volumes only oneDNN's know another format than row-major.
    """
    if x.device.type not in ("cpu", "cuda"):
        return False
    if x.ndim == 3:
        return any(suggests_channels_last(unsqueeze(t, 2)) for t in (x, weight) if t is weight or x.is_contiguous)
    if not (suggests_channels_last(x) or suggests_channels_last(weight)):
        return False
    return x.ndim == 4 or x.device.type == "cuda" or _onednn_convolves(x, weight, *window)


def _onednn_convolves(x: TensorSpec, weight: TensorSpec, *window: Any) -> bool:
    """Asked with tensors like these at the example's sizes, whose memory is never touched."""

    def numbers(sizes: Any) -> Any:
        return (
            [active.carrier().hint(s) if isinstance(s, Expr) else s for s in sizes] if isinstance(sizes, (list, tuple)) else sizes
        )

    operands = [torch.empty_strided(numbers(t.sizes), numbers(t.strides), dtype=t.dtype) for t in (x, weight)]
    return onednn_convolves(*operands, *map(numbers, window))


def _strides(sizes: Sequence[Size], last: bool) -> tuple[Size, ...]:
    if not last:
        return contiguous(sizes)
    if len(sizes) == 3:
        strides = channels_last((*sizes[:2], 1, sizes[2]))
        return *strides[:2], strides[3]
    return channels_last(sizes)


@row("convolution.default", "_convolution.default", reads=f"input weight bias {WINDOW}")
def convolution(x: TensorSpec, weight: TensorSpec, bias: Given, *window: Any) -> TensorSpec:
    stride, padding, dilation, transposed, output_padding, groups = window
    check(x.ndim == weight.ndim and x.dtype is weight.dtype)
    check(_at_least(1, stride) and _at_least(0, padding) and _at_least(1, dilation) and _at_least(0, output_padding))
    check(groups > 0 and at_least(groups, weight.sizes[0]))
    check(weight.sizes[0].__class__ is not int or weight.sizes[0] % groups == 0)
    sizes = _sizes(x, weight, *window)
    channels = weight.sizes[1] * groups if transposed else weight.sizes[0]
    check(bias is None or same_sizes(bias.sizes, (channels,)))
    return TensorSpec(x.dtype, x.device, sizes, _strides(sizes, _keeps_channels_last(x, weight, window)), 0)


@row("convolution_backward.default", reads=f"grad_output input weight output_mask {WINDOW}")
def convolution_backward(grad: TensorSpec, x: TensorSpec, weight: TensorSpec, mask: Sequence[bool], *window: Any) -> Results:
    last = _keeps_channels_last(x, weight, window)

    def laid_out(spec: TensorSpec) -> TensorSpec:
        return TensorSpec(spec.dtype, spec.device, spec.sizes, _strides(spec.sizes, last), 0)

    return (
        laid_out(x) if mask[0] else None,
        laid_out(weight) if mask[1] else None,
        fresh(grad, (grad.sizes[1],)) if mask[2] else None,
    )
