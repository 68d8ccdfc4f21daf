"""Convolutions are library calls: ATen's forms map to the prims."""

from __future__ import annotations

from collections.abc import Sequence

from ..op import PrimValue, prims
from ..symbols import Size
from .table import aten, decomposition


@decomposition(aten.convolution, aten.convolution_overrideable)
def convolution(
    x: PrimValue,
    w: PrimValue,
    b: PrimValue | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
) -> PrimValue:
    return prims.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


@decomposition(aten._convolution)
def _convolution(
    x: PrimValue,
    w: PrimValue,
    b: PrimValue | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    *flags: bool,
) -> PrimValue:
    return prims.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


@decomposition(aten.convolution_backward)
def convolution_backward(
    grad: PrimValue,
    x: PrimValue,
    w: PrimValue,
    bias_sizes: Sequence[Size] | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    mask: Sequence[bool],
) -> tuple[PrimValue | None, ...]:
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    if not mask[2] or grad.spec.device.type != "cuda":  # elsewhere the library sums while it computes the weight's gradient
        return prims.convolution_backward(grad, x, w, bias_sizes, *settings, mask)
    bias = prims.sum(grad, (0, *range(2, grad.ndim)), False)
    if not (mask[0] or mask[1]):
        return None, None, bias
    of_x, of_w, _ = prims.convolution_backward(grad, x, w, None, *settings, [mask[0], mask[1], False])
    return of_x, of_w, bias


@decomposition(aten.convolution_backward_overrideable)
def convolution_backward_overrideable(
    grad: PrimValue,
    x: PrimValue,
    w: PrimValue,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    mask: Sequence[bool],
) -> tuple[PrimValue | None, ...]:
    sizes = (grad.sizes[1],)
    return prims.convolution_backward(grad, x, w, sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
