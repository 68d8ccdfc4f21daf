"""flex_attention in calls of torch: what its operator computes in eager mode, traced as a part of the user's program."""

from __future__ import annotations

import math

import torch

from ._torch import safe_softmax

__all__ = ["attended", "before_change"]


def before_change(query: torch.Tensor, key: torch.Tensor, scale: float) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The scores that score_mod gets, and the four indices, each along a dim of its own."""
    groups = query.size(1) // key.size(1)
    key = torch.repeat_interleave(key, groups, dim=1) if groups != 1 else key
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(precision) @ key.to(precision).transpose(-2, -1)) * scale
    places = []
    for dim, size in enumerate(scores.shape):
        shape = [1, 1, 1, 1]
        shape[dim] = size
        places.append(torch.arange(0, size, device=scores.device).view(shape))
    return scores, places


def attended(
    query: torch.Tensor, value: torch.Tensor, scores: torch.Tensor, changed: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, log of the sum of exponentials, largest score), the two in powers of two as the operator gives them."""
    groups = query.size(1) // value.size(1)
    value = torch.repeat_interleave(value, groups, dim=1) if groups != 1 else value
    kept = torch.where(mask, changed, -math.inf).expand(scores.shape)
    sums, largest = kept.logsumexp(dim=-1), kept.amax(dim=-1)
    empty = (kept == -math.inf).all(dim=-1)
    sums = torch.where(empty, -math.inf, sums)
    out = safe_softmax(kept, dim=-1).to(query.dtype) @ value.to(query.dtype)
    return out, sums / math.log(2), largest.detach() / math.log(2)
