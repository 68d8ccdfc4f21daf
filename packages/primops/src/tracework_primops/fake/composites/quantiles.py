"""Composites: quantiles. Torch's code asks for data before 2.13 (whether q is within bounds), and later takes fakes' q as it is."""

from __future__ import annotations

import math
from typing import Any

import torch

from .registry import composite

ROUNDED = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}
"""Interpolations that take one element."""
INTERPOLATIONS = {"linear", "midpoint", *ROUNDED}


@composite("quantile.scalar", "quantile", static=True)
def quantile(
    x: torch.Tensor, q: torch.Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> torch.Tensor:
    """NaN where there is one."""
    return _quantile(x, q, dim, keepdim, interpolation, False)


@composite("nanquantile.scalar", "nanquantile", static=True)
def nanquantile(
    x: torch.Tensor, q: torch.Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> torch.Tensor:
    """Of the elements that are no NaN."""
    return _quantile(x, q, dim, keepdim, interpolation, True)


def _quantile(x: torch.Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, skips_nan: bool) -> torch.Tensor:
    """Torch's operations, in its order, for a tensor or a number q; NotImplemented for arguments that it refuses."""
    rank = max(x.dim(), 1)
    if x.dtype not in (torch.float32, torch.float64) or 0 in x.shape or interpolation not in INTERPOLATIONS:
        return NotImplemented
    if dim is not None and not -rank <= dim < rank:
        return NotImplemented
    is_number = not isinstance(q, torch.Tensor)
    if is_number:
        if not 0 <= q <= 1:
            return NotImplemented
        q = x.new_full([], q)
    elif q.dtype is not x.dtype or q.dim() > 1 or q.device != x.device:
        return NotImplemented
    values = _sorted(x, dim, keepdim)
    last = values.shape[-1] - 1
    if skips_nan:
        places = q * (values.isnan().logical_not().sum(-1, True) - 1)
        places = places.masked_fill(places < 0, 0)
    else:
        has_nan = values.isnan().any(-1, True)
        sizes = [*values.shape[:-1], *(q.shape or (1,))]
        places = (q * last).expand(sizes).masked_fill(has_nan.expand(sizes), last)
    places = ROUNDED[interpolation](places) if interpolation in ROUNDED else places
    below = places.to(torch.int64)
    if not is_number and x.device.type == "cpu":  # an index that the gather refuses, as eager refuses such a q
        below = below.masked_fill(((q >= 0) & (q <= 1)).logical_not(), -1)
    found = values.gather(-1, below)
    if interpolation not in ROUNDED:
        weights = places - below if interpolation == "linear" else torch.full_like(places, 0.5)
        found.lerp_(values.gather(-1, places.ceil().to(torch.int64)), weights)
    if q.dim() == 0:
        return found.squeeze_(-1)  # in place, as in eager: no views, and versions count
    return found.unsqueeze_(0).transpose_(0, -1).squeeze_(-1)


def _sorted(x: torch.Tensor, dim: int | None, keepdim: bool) -> torch.Tensor:
    """The elements in order, in the sizes of the result and one dim more."""
    if dim is None:
        values, kept = x.reshape(math.prod(x.shape)), [1] * x.dim() if keepdim else []
    else:
        dim %= max(x.dim(), 1)
        values = x if dim == x.dim() - 1 else x.unsqueeze(-1).transpose(dim, -1)
        kept = [*x.shape[:dim], *([1] if keepdim and x.dim() else []), *x.shape[dim + 1 :]]
    ordered = values.sort()[0]
    return ordered.reshape([*kept, ordered.shape[-1]])
