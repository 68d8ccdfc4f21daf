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
    return prims.convolution_backward(grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask)


@decomposition(aten.convolution_backward_overrideable)
def convolution_backward_overrideable(grad, x, w, stride, padding, dilation, transposed, output_padding, groups, mask):
    sizes = (grad.sizes[1],)
    return prims.convolution_backward(grad, x, w, sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
