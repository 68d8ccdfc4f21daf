"""Composites: pooling along one dim."""

from __future__ import annotations

from typing import Any

import torch

from .registry import composite


@composite("max_pool1d")
def max_pool1d(x: torch.Tensor, kernel_size: Any, *window: Any) -> Any:
    """The maxima of the form that gives their positions too, as torch does for all but plain CPU tensors."""
    return torch.ops.aten.max_pool1d_with_indices.default(x, kernel_size, *window)[0]
