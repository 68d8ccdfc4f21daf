"""Composites: cross entropy against probabilities, with a weight for each class."""

from __future__ import annotations

from typing import Any

import torch

from .registry import composite

NONE, MEAN = 0, 1


@composite("cross_entropy_loss")
def cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: Any = -100,
    label_smoothing: float = 0.0,
) -> Any:
    if weight is None or label_smoothing != 0 or target.dim() != x.dim() or x.dim() == 0 or not target.is_floating_point():
        return NotImplemented
    class_dim = 0 if x.dim() == 1 else 1
    if weight.dim() != 1 or list(target.shape) != list(x.shape) or weight.shape[0] != x.shape[class_dim]:
        return NotImplemented
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        return NotImplemented
    shown = weight.view([-1 if d == class_dim else 1 for d in range(x.dim())])
    products = torch.log_softmax(x, class_dim, x.dtype) * target * shown
    if reduction == NONE:
        return -products.sum(class_dim)
    total = -products.sum()
    return total / (x.numel() // x.shape[class_dim]) if reduction == MEAN else total
