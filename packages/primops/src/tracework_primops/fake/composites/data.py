"""Composites, and ops whose gradients, look at data that the result does not depend on: how many positions a mask has, which are new."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NoReturn

import torch

from ..._torch import unsafe_view
from ...errors import DataDependentError
from .registry import composite


@composite("combinations", static=True)
def combinations(x: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """Torch selects with masks that depend on the size alone; the positions that they leave are known while tracing."""
    if x.dim() != 1 or r < 1 or isinstance(x.shape[0], torch.SymInt):
        return NotImplemented
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(x.shape[0]), r))
    places = torch.tensor([i for row in rows for i in row], dtype=torch.int64, device=x.device)
    return unsafe_view(x.index_select(0, places), [len(rows), r])  # eager's result is no view


@composite("tensor_split.tensor_indices_or_sections", static=True)
def tensor_split(x: torch.Tensor, places: torch.Tensor, dim: int = 0) -> NoReturn:
    """The number of pieces, or their ends, are what the tensor holds."""
    raise DataDependentError("aten.tensor_split.tensor_indices_or_sections")


@composite("cov", static=True)
def cov(
    x: torch.Tensor, *, correction: int = 1, fweights: torch.Tensor | None = None, aweights: torch.Tensor | None = None
) -> torch.Tensor:
    """Without weights, what the data are divided by is a number. Torch checks weights, and warns of too few observations, at each call."""
    if fweights is not None or aweights is not None:
        raise DataDependentError("aten.cov.default with weights")
    if x.dim() > 2 or x.dtype is torch.bool:
        return NotImplemented
    rows = x.view(1, -1) if x.dim() < 2 else x
    count = rows.shape[1]
    if count - correction <= 0:
        raise DataDependentError("aten.cov.default of too few observations")
    centred = rows - (rows.sum(1) / count).unsqueeze(1)
    return (centred.mm(centred.t().conj()) / (count - correction)).squeeze()


@composite("index_fill.int_Tensor", static=True)
def index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return _written(x, _filled(x, dim, index, value))


@composite("index_fill_.int_Tensor", static=True)
def index_fill_(x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    filled = _filled(x, dim, index, value)
    return filled if filled is NotImplemented else x.copy_(filled)


def _filled(x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """With a gradient for the value: the backward of index_fill counts each position once, for which it sorts the index."""
    if not _wants_gradient(value) or value.dim() or not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        return NotImplemented
    mask = torch.zeros([x.shape[dim] if x.dim() else 1], dtype=torch.bool, device=x.device).index_fill(0, index, True)
    return torch.where(mask.view([-1 if d == dim % x.dim() else 1 for d in range(x.dim())]), value.to(x.dtype), x)


@composite("index_put", static=True)
def index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    return _written(x, _put(x, indices, values, accumulate))


@composite("index_put_", "_index_put_impl_", static=True)
def index_put_(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False, unsafe: bool = False
) -> torch.Tensor:
    put = _put(x, indices, values, accumulate)
    return put if put is NotImplemented else x.copy_(put)


def _put(x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    """One mask and values that do not tell its positions apart: a select. The backward of index_put would look for the positions."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(given) != 1 or not _wants_gradient(values) or values.dtype is not x.dtype:
        return NotImplemented
    ((before, mask),) = given
    after = x.dim() - before - mask.dim()
    if mask.dtype is not torch.bool or not mask.dim() or list(mask.shape) != list(x.shape[before : before + mask.dim()]):
        return NotImplemented
    at = values.dim() - after - 1  # the dim of the values that stands for the mask's
    if at > before or at >= 0 and (_depends_on_data(values.shape[at]) or values.shape[at] != 1):
        return NotImplemented
    if at >= 0:
        values = values.reshape([*values.shape[:at], *[1] * mask.dim(), *values.shape[at + 1 :]])
    return torch.where(mask.reshape([*mask.shape, *[1] * after]), x + values if accumulate else values, x)


def _depends_on_data(size: int | torch.SymInt) -> bool:
    """Whether a size is that of what was taken by a mask or the like: there are as many values as positions."""
    return isinstance(size, torch.SymInt) and not size.node.has_hint()


def _wants_gradient(x: torch.Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def _written(x: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """The result in memory laid out as a copy of x is."""
    return result if result is NotImplemented else x.clone().copy_(result)
