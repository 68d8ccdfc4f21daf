"""Composites: pooling along one dim."""

from __future__ import annotations

from typing import Any

import torch

from ...broadcasting import contiguous
from .registry import composite


@composite("max_pool1d", static=True)
def max_pool1d(x: torch.Tensor, kernel_size: Any, *window: Any) -> torch.Tensor:
    """The maxima of the form that gives their positions too, which is what torch takes for gradients.

    Without them the CPU has a kernel of its own, whose result is row-major.
    """
    found = torch.ops.aten.max_pool1d_with_indices.default(x, kernel_size, *window)[0]
    if found.requires_grad or x.device.type != "cpu" or found.stride() == contiguous(found.shape):
        return found
    return found.clone(memory_format=torch.contiguous_format)
