"""Reference execution of convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule()
def convolution(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    return torch.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


@rule()
def convolution_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    return torch.ops.aten.convolution_backward(
        grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
    )
