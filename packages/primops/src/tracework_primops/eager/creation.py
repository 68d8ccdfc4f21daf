"""Reference execution of creation prims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule()
def iota(n: int, start: float, step: float, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if not dtype.is_floating_point:
        return (torch.arange(n, device=device) * step + start).to(dtype)
    accumulate = torch.float64 if dtype is torch.float64 or torch.device(device).type == "cpu" else torch.float32
    return (torch.arange(n, device=device).to(accumulate) * step + start).to(dtype)


@rule()
def full(sizes: Sequence[int], value: complex, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.full(sizes, value, dtype=dtype, device=device)


@rule()
def empty(sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device=device)


@rule()
def empty_strided(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(sizes, strides, dtype=dtype, device=device)


@rule()
def scalar_tensor(value: complex, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=dtype, device=device)


@rule()
def linspace(start: float, end: float, steps: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.linspace(start, end, steps, dtype=dtype, device=device)


@rule()
def logspace(start: float, end: float, steps: int, base: float, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.logspace(start, end, steps, base, dtype=dtype, device=device)


@rule()
def eye(n: int, m: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.eye(n, m, dtype=dtype, device=device)


@rule()
def tril_indices(row: int, col: int, offset: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.tril_indices(row, col, offset, dtype=dtype, device=device)


@rule()
def triu_indices(row: int, col: int, offset: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.triu_indices(row, col, offset, dtype=dtype, device=device)
