"""Composites: cross entropy against probabilities, with a weight for each class; CTC with lengths that are numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .registry import composite

aten = torch.ops.aten

NONE, MEAN = 0, 1


@composite("cross_entropy_loss")
def cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int | torch.SymInt = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
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


@composite("ctc_loss.IntList", static=True)
def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    reduction: int = MEAN,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Torch fills a tensor with the lengths through its memory, to divide by them."""
    if log_probs.device.type == "cuda" or log_probs.dim() not in (2, 3):
        return NotImplemented
    alone = log_probs.dim() == 2
    if alone:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    losses = aten._ctc_loss.default(log_probs, targets.long(), input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        losses = torch.where(losses == math.inf, torch.zeros((), dtype=losses.dtype, device=losses.device), losses)
    if reduction == MEAN:
        return (losses / torch.tensor([max(n, 1) for n in target_lengths], dtype=losses.dtype, device=losses.device)).mean()
    if reduction == NONE:
        return losses.squeeze(0) if alone else losses
    return losses.sum()
