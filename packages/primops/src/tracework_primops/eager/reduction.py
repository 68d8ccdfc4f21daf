"""Reference execution of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..op import OPS, Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule("sum")
def sum(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype | None) -> torch.Tensor:
    return torch.sum(x, dims, keepdim, dtype=dtype or x.dtype) if dims else x.to(dtype or x.dtype)


def _prod(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype | None) -> torch.Tensor:
    y = x.to(dtype or x.dtype)
    for d in sorted(dims, reverse=True):
        y = torch.prod(y, d, keepdim, dtype=y.dtype)
    return y


EAGER[OPS["prod"]] = _prod


@rule()
def amax(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    return torch.amax(x, dims, keepdim) if dims else x


@rule()
def amin(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    return torch.amin(x, dims, keepdim) if dims else x


@rule()
def any(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    return torch.any(x != 0, dims, keepdim) if dims else x != 0


@rule()
def all(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    return torch.all(x != 0, dims, keepdim) if dims else x != 0


@rule()
def argmax(x: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    return torch.argmax(x, dim, keepdim)


@rule()
def argmin(x: torch.Tensor, dim: int, keepdim: bool) -> torch.Tensor:
    return torch.argmin(x, dim, keepdim)


@rule()
def var_mean(x: torch.Tensor, dims: tuple[int, ...], correction: float, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.var_mean(x, dims or None, correction=correction, keepdim=keepdim)


@rule()
def xor_sum(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    y = x
    for d in sorted(dims, reverse=True):
        parts = list(y.unbind(d)) or [torch.zeros_like(y.sum(d))]
        total = parts[0].clone()
        for part in parts[1:]:
            total = total ^ part
        y = total.unsqueeze(d) if keepdim else total
    return y


@rule()
def logsumexp(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    return torch.logsumexp(x, dims, keepdim) if dims else x


@rule()
def norm(x: torch.Tensor, ord: float, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    return torch.linalg.vector_norm(x, ord, dims or None, keepdim)


@rule()
def count_nonzero(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return torch.count_nonzero(x, dims)


@rule()
def median(x: torch.Tensor, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.median(x, dim, keepdim))


@rule()
def nanmedian(x: torch.Tensor, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.nanmedian(x, dim, keepdim))


@rule()
def mode(x: torch.Tensor, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.mode(x, dim, keepdim))


@rule()
def kthvalue(x: torch.Tensor, k: int, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.kthvalue(x, k, dim, keepdim))


@rule()
def histc(x: torch.Tensor, bins: int, min: float, max: float) -> torch.Tensor:
    return torch.histc(x, bins, min, max)
