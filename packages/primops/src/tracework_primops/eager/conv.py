"""Reference execution of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule()
def convolution(
    x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Any:
    return torch.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


@rule()
def convolution_backward(
    grad: Any, x: Any, w: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, mask: Any,
) -> Any:  # fmt: skip
    return torch.ops.aten.convolution_backward(
        grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
    )
