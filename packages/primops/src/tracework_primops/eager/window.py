"""Reference execution of pooling, resampling and patches: the ATen function for the number of window dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._torch import OpOverload
from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _nd(name: str, n: int) -> OpOverload:
    """aten.<name with {n}>.default"""
    return getattr(aten, name.format(n=n)).default


@rule()
def max_pool(
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    if len(kernel) == 1:
        return tuple(torch.nn.functional.max_pool1d(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True))
    return _nd("max_pool{n}d_with_indices", len(kernel))(x, kernel, stride, padding, dilation, ceil_mode)


@rule()
def max_pool_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> torch.Tensor:
    return _nd("max_pool{n}d_with_indices_backward", len(kernel))(grad, x, kernel, stride, padding, dilation, ceil_mode, indices)


@rule()
def avg_pool(
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> torch.Tensor:
    if len(kernel) == 1:
        return torch.avg_pool1d(x, kernel, stride, padding, ceil_mode, count_include_pad)
    window = kernel, stride, padding, ceil_mode, count_include_pad, divisor
    if len(kernel) == 3 and x.dtype in HALVES:  # which the CPU's kernel lacks, though it pools volumes of them to given sizes
        return aten.avg_pool3d(x.float(), *window).to(x.dtype)
    return _nd("avg_pool{n}d", len(kernel))(x, *window)


@rule()
def avg_pool_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> torch.Tensor:
    return _nd("avg_pool{n}d_backward", len(kernel))(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


@rule()
def adaptive_avg_pool(x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    return getattr(torch.nn.functional, f"adaptive_avg_pool{len(sizes)}d")(x, sizes)


@rule()
def adaptive_avg_pool_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _nd("_adaptive_avg_pool{n}d_backward", x.ndim - 2)(grad, x)


@rule()
def adaptive_max_pool(x: torch.Tensor, sizes: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(_nd("adaptive_max_pool{n}d", len(sizes))(x, sizes))


@rule()
def adaptive_max_pool_backward(grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return _nd("adaptive_max_pool{n}d_backward", x.ndim - 2)(grad, x, indices)


@rule()
def max_unpool(x: torch.Tensor, indices: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    if len(sizes) == 2:
        return aten.max_unpool2d(x, indices, sizes)
    return aten.max_unpool3d(x, indices, sizes, [1] * 3, [0] * 3)


@rule()
def upsample_nearest(x: torch.Tensor, sizes: Sequence[int], scales: Sequence[float | None], exact: bool) -> torch.Tensor:
    name = "_upsample_nearest_exact{n}d" if exact else "upsample_nearest{n}d"
    return _nd(name, len(sizes))(x, sizes, *scales)


@rule()
def upsample_nearest_backward(
    grad: torch.Tensor, sizes: Sequence[int], input_sizes: Sequence[int], scales: Sequence[float | None], exact: bool
) -> torch.Tensor:
    name = "_upsample_nearest_exact{n}d_backward" if exact else "upsample_nearest{n}d_backward"
    return _nd(name, len(sizes))(grad, sizes, input_sizes, *scales)


@rule()
def upsample_linear(x: torch.Tensor, sizes: Sequence[int], align_corners: bool, scales: Sequence[float | None]) -> torch.Tensor:
    n = len(sizes)
    return _nd(f"upsample_{_LINEAR[n]}{n}d", n)(x, sizes, align_corners, *scales)


@rule()
def upsample_linear_backward(
    grad: torch.Tensor, sizes: Sequence[int], input_sizes: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> torch.Tensor:
    n = len(sizes)
    return _nd(f"upsample_{_LINEAR[n]}{n}d_backward", n)(grad, sizes, input_sizes, align_corners, *scales)


@rule()
def upsample_bicubic(x: torch.Tensor, sizes: Sequence[int], align_corners: bool, scales: Sequence[float | None]) -> torch.Tensor:
    return aten.upsample_bicubic2d(x, sizes, align_corners, *scales)


@rule()
def upsample_bicubic_backward(
    grad: torch.Tensor, sizes: Sequence[int], input_sizes: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> torch.Tensor:
    return aten.upsample_bicubic2d_backward(grad, sizes, input_sizes, align_corners, *scales)


@rule()
def grid_sample(x: torch.Tensor, grid: torch.Tensor, mode: int, padding_mode: int, align_corners: bool) -> torch.Tensor:
    return _nd("grid_sampler_{n}d", x.ndim - 2)(x, grid, mode, padding_mode, align_corners)


@rule()
def grid_sample_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    mode: int,
    padding_mode: int,
    align_corners: bool,
    mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor]:
    return _nd("grid_sampler_{n}d_backward", x.ndim - 2)(grad, x, grid, mode, padding_mode, align_corners, mask)


@rule()
def im2col(
    x: torch.Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> torch.Tensor:
    return aten.im2col(x, kernel, dilation, padding, stride)


@rule()
def col2im(
    x: torch.Tensor,
    sizes: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    return aten.col2im(x, sizes, kernel, dilation, padding, stride)


@rule()
def reflection_pad(x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    return _nd("reflection_pad{n}d", len(padding) // 2)(x, padding)


@rule()
def replication_pad(x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    return _nd("replication_pad{n}d", len(padding) // 2)(x, padding)


@rule()
def reflection_pad_backward(grad: torch.Tensor, x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    return _nd("reflection_pad{n}d_backward", len(padding) // 2)(grad, x, padding)


@rule()
def replication_pad_backward(grad: torch.Tensor, x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    return _nd("replication_pad{n}d_backward", len(padding) // 2)(grad, x, padding)
