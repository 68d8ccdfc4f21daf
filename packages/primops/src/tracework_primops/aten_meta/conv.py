"""ATen rows: convolutions."""

from __future__ import annotations

from .. import broadcasting
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import floordiv
from .rows import contiguous, fresh, row, suggests_channels_last


def _of(values, i):
    return values[i] if len(values) > 1 else values[0]


def _sizes(x, weight, stride, padding, dilation, transposed, output_padding, groups):
    channels = weight.sizes[1] * groups if transposed else weight.sizes[0]
    expected = weight.sizes[0] if transposed else weight.sizes[1] * groups
    if not active.equal(x.sizes[1], expected):
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.sizes)}, expected input{list(x.sizes)} to have {expected} channels, "
            f"but got {x.sizes[1]} channels instead"
        )
    sizes = [x.sizes[0], channels]
    for i in range(x.ndim - 2):
        size, kernel = x.sizes[i + 2], _of(dilation, i) * (weight.sizes[i + 2] - 1) + 1
        if transposed:
            sizes.append((size - 1) * _of(stride, i) - 2 * _of(padding, i) + kernel + _of(output_padding, i))
        else:
            sizes.append(floordiv(size + 2 * _of(padding, i) - kernel, _of(stride, i)) + 1)
    return tuple(sizes)


def _backend_keeps_channels_last(x, weight):
    return x.device.type in ("cpu", "cuda") and (suggests_channels_last(x) or suggests_channels_last(weight))


def _strides(x, weight, sizes):
    if len(sizes) in (4, 5) and _backend_keeps_channels_last(x, weight):
        return broadcasting.channels_last(sizes)
    return contiguous(sizes)


@row("convolution.default", "_convolution.default")
def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *rest):
    if x.ndim != weight.ndim:
        raise RuntimeError(f"Expected {weight.ndim}D input to convolution, but got input of size: {list(x.sizes)}")
    if x.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({x.dtype}) and weight type ({weight.dtype}) should be the same")
    sizes = _sizes(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    return TensorSpec(x.dtype, x.device, sizes, _strides(x, weight, sizes), 0)


@row("convolution_backward.default")
def convolution_backward(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    def laid_out(spec):
        return TensorSpec(spec.dtype, spec.device, spec.sizes, _strides(x, weight, spec.sizes), 0)

    return (
        laid_out(x) if mask[0] else None,
        laid_out(weight) if mask[1] else None,
        fresh(grad, (grad.sizes[1],)) if mask[2] else None,
    )
