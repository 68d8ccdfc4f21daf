"""Reference execution of views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


for _function in (torch.permute, torch.reshape, torch.unsqueeze):
    rule()(_function)


@rule()
def expand(x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    return x.expand(sizes)


@rule()
def slice(x: torch.Tensor, dim: int, start: int, end: int, step: int) -> torch.Tensor:
    return torch.ops.aten.slice.Tensor(x, dim, start, end, step)


@rule()
def squeeze(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    return x.squeeze(dims)


@rule()
def as_strided(x: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    return x.as_strided(sizes, strides, offset)


@rule()
def diagonal(x: torch.Tensor, offset: int, dim1: int, dim2: int) -> torch.Tensor:
    return torch.diagonal(x, offset, dim1, dim2)


@rule()
def flip(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    return torch.flip(x, dims)


@rule()
def unfold(x: torch.Tensor, dim: int, size: int, step: int) -> torch.Tensor:
    return x.unfold(dim, size, step)


@rule()
def select(x: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    return x.select(dim, index)


@rule()
def view_as_real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj())


@rule()
def view_as_complex(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.contiguous())


@rule()
def view_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.view(dtype)
