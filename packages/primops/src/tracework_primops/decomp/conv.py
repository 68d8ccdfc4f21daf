"""Convolutions are library calls: ATen's forms map to the prims."""

from __future__ import annotations

from ..op import prims
from .table import aten, decomposition


@decomposition(aten.convolution, aten.convolution_overrideable)
def convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups):
    return prims.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


@decomposition(aten._convolution)
def _convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups, *flags):
    return prims.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


@decomposition(aten.convolution_backward)
def convolution_backward(grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    if not mask[2] or grad.spec.device.type != "cuda":  # elsewhere the library sums while it computes the weight's gradient
        return prims.convolution_backward(grad, x, w, bias_sizes, *settings, mask)
    bias = prims.sum(grad, (0, *range(2, grad.ndim)), False)
    if not (mask[0] or mask[1]):
        return None, None, bias
    of_x, of_w, _ = prims.convolution_backward(grad, x, w, None, *settings, [mask[0], mask[1], False])
    return of_x, of_w, bias


@decomposition(aten.convolution_backward_overrideable)
def convolution_backward_overrideable(grad, x, w, stride, padding, dilation, transposed, output_padding, groups, mask):
    sizes = (grad.sizes[1],)
    return prims.convolution_backward(grad, x, w, sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
