"""Reference execution of scans and sorting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule()
def cumsum(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cumsum(x, dim, dtype=x.dtype)


@rule()
def cumprod(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cumprod(x, dim, dtype=x.dtype)


@rule()
def cummax(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.cummax(x, dim))


@rule()
def cummin(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.cummin(x, dim))


@rule()
def logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.logcumsumexp(x, dim)


@rule()
def associative_scan(
    combine: Callable[..., Iterable[torch.Tensor]], xs: Sequence[torch.Tensor], dim: int, reverse: bool
) -> tuple[torch.Tensor, ...]:
    """Step by step; `combine` takes two lists of slices and gives one."""
    columns = [list(x.unbind(dim)) for x in xs]
    steps = range(len(columns[0]))
    order = reversed(steps) if reverse else steps
    carried: list[torch.Tensor] | None = None
    for i in order:
        current = [c[i] for c in columns]
        carried = current if carried is None else list(combine(carried, current))
        for column, value in zip(columns, carried, strict=True):
            column[i] = value
    return tuple(torch.stack(c, dim) for c in columns)


@rule()
def sort(x: torch.Tensor, dim: int, descending: bool, stable: bool) -> tuple[torch.Tensor, ...]:
    return tuple(torch.sort(x, dim=dim, descending=descending, stable=stable))


@rule()
def topk(x: torch.Tensor, k: int, dim: int, largest: bool, sorted: bool) -> tuple[torch.Tensor, ...]:
    return tuple(torch.topk(x, k, dim, largest, sorted))
