"""Convolutions: library calls by default."""

from ..op import Kind, Tag, declarer

op = declarer("conv", Kind.LIBRARY, Tag.COMPUTE)

op(
    "convolution(x:T, w:T, b:O, stride, padding, dilation, transposed, output_padding, groups)",
    "1-d to 3-d convolution, as aten.convolution",
)
op(
    "convolution_backward(grad:T, x:T, w:T, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask) -> 3",
    "gradients of x, w, bias; None where mask is false",
)
