"""Composites: interpolation by output size or by scale factors."""

from __future__ import annotations

from typing import Any

import torch

from ... import _torch
from .registry import composite

PLAIN = "upsample_nearest1d upsample_nearest2d upsample_nearest3d".split()
PLAIN += "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d".split()
ALIGNED = "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d".split()
ALIGNED += "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa".split()


def _sizes(x: torch.Tensor, output_size: Any, scales: Any) -> list[Any]:
    if (output_size is None) == (scales is None):
        raise RuntimeError("Must specify exactly one of output_size and scale_factors")
    if output_size is not None:
        return list(output_size)
    return [torch.sym_int(size * scale) for size, scale in zip(x.shape[2:], scales)]


def _resampling(name: str, dims: int) -> None:
    kernel = getattr(torch.ops.aten, name).default

    def form(x: torch.Tensor, output_size: Any, *how: Any) -> Any:
        *align_corners, scales = how
        if x.dim() != dims + 2:
            return NotImplemented
        return kernel(x, _sizes(x, output_size, scales), *align_corners, *(scales or [None] * dims))

    composite(f"{name}.vec")(form)


for _name in _torch.present(torch.ops.aten, (*PLAIN, *ALIGNED)):
    _resampling(_name, int(_name.partition("d")[0][-1]) if _name[-1] == "d" else 2)
