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
from .rows import at_least, fresh, row, suggests_channels_last
from .view import unsqueeze


def _at_least(least: int, values: Sequence[Size]) -> bool:
    return all(v.__class__ is not int or v >= least for v in values)


def _check(
    x: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    output_padding: Sequence[Size],
    groups: int,
) -> None:
    """Raises RuntimeError for what eager refuses before it computes."""
    checks = (
        (_at_least(1, stride), "non-positive stride is not supported"),
        (_at_least(0, padding), "negative padding is not supported"),
        (_at_least(1, dilation), "dilation should be greater than zero"),
        (_at_least(0, output_padding), "negative output_padding is not supported"),
        (groups > 0, "non-positive groups is not supported"),
        (at_least(groups, weight.sizes[0]), f"expected weight to be at least {groups} at dimension 0, but got {weight}"),
        (
            not (weight.sizes[0].__class__ is int and weight.sizes[0] % groups),
            f"weight {weight} is not divisible by groups={groups}",
        ),
    )
    for holds, message in checks:
        if not holds:
            raise RuntimeError(message)


def _sizes(x: TensorSpec, weight: TensorSpec, *window: Any) -> tuple[Size, ...]:
    """Raises RuntimeError where the operands do not fit, FakeTensorError for a transposed one's result without elements."""
    *_, transposed, _, groups = window
    expected = weight.sizes[0] if transposed else weight.sizes[1] * groups
    if not active.equal(x.sizes[1], expected):
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.sizes)}, expected input{list(x.sizes)} to have {expected} channels, "
            f"but got {x.sizes[1]} channels instead"
        )
    sizes, room = convolved(x.sizes, weight.sizes, *window)
    for each in room:
        if not at_least(0, each):
            raise RuntimeError(
                f"Given input size {list(x.sizes)} and kernel size {list(weight.sizes[2:])}: the output is too small"
            )
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


def _onednn_convolves(
    x: TensorSpec,
    weight: TensorSpec,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
) -> bool:
    """Asked with tensors like these at the example's sizes, whose memory is never touched."""

    def numbers(sizes: Sequence[Size]) -> list[int]:
        return [active.carrier().hint(s) if isinstance(s, Expr) else s for s in sizes]

    operands = [torch.empty_strided(numbers(t.sizes), numbers(t.strides), dtype=t.dtype) for t in (x, weight)]
    window = numbers(stride), numbers(padding), numbers(dilation), transposed, numbers(output_padding), groups
    return onednn_convolves(*operands, *window)


def _strides(sizes: Sequence[Size], last: bool) -> tuple[Size, ...]:
    if not last:
        return contiguous(sizes)
    if len(sizes) == 3:
        strides = channels_last((*sizes[:2], 1, sizes[2]))
        return *strides[:2], strides[3]
    return channels_last(sizes)


@row("convolution.default", "_convolution.default")
def convolution(
    x: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
    *rest: Any,
) -> TensorSpec:
    if x.ndim != weight.ndim:
        raise RuntimeError(f"Expected {weight.ndim}D input to convolution, but got input of size: {list(x.sizes)}")
    if x.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({x.dtype}) and weight type ({weight.dtype}) should be the same")
    _check(x, weight, bias, stride, padding, dilation, output_padding, groups)
    window = stride, padding, dilation, transposed, output_padding, groups
    sizes = _sizes(x, weight, *window)
    channels = weight.sizes[1] * groups if transposed else weight.sizes[0]
    if bias is not None and not (bias.ndim == 1 and active.equal(bias.sizes[0], channels)):
        raise RuntimeError(f"expected bias to be 1-dimensional with {channels} elements, but got bias of size {list(bias.sizes)}")
    return TensorSpec(x.dtype, x.device, sizes, _strides(sizes, _keeps_channels_last(x, weight, window)), 0)


@row("convolution_backward.default")
def convolution_backward(
    grad: TensorSpec,
    x: TensorSpec,
    weight: TensorSpec,
    bias_sizes: Sequence[Size] | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    last = _keeps_channels_last(x, weight, (stride, padding, dilation, transposed, output_padding, groups))

    def laid_out(spec: TensorSpec) -> TensorSpec:
        return TensorSpec(spec.dtype, spec.device, spec.sizes, _strides(spec.sizes, last), 0)

    return (
        laid_out(x) if mask[0] else None,
        laid_out(weight) if mask[1] else None,
        fresh(grad, (grad.sizes[1],)) if mask[2] else None,
    )
