"""Reference execution of gather, scatter, pad, concatenate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .._torch import unique2
from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


def _refuse_negative(indices: Iterable[torch.Tensor | None], wrap: bool) -> None:
    """ATen's index counts negative ones from the end, an embedding refuses them."""
    if not wrap and any(bool((i < 0).any()) for i in indices if i is not None):
        raise IndexError("index out of range in self")


@rule()
def cat(xs: Iterable[torch.Tensor], dim: int) -> torch.Tensor:
    return torch.cat(list(xs), dim)


@rule()
def pad(x: torch.Tensor, low_high_pairs: Sequence[tuple[int, int]], value: complex) -> torch.Tensor:
    flat = [v for pair in reversed(low_high_pairs) for v in pair]
    return torch.constant_pad_nd(x, flat, value)


@rule()
def gather(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, dim, index)


@rule()
def index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    return torch.index_select(x, dim, index)


@rule()
def index(x: torch.Tensor, indices: Sequence[torch.Tensor | None], wrap: bool) -> torch.Tensor:
    _refuse_negative(indices, wrap)
    return torch.ops.aten.index.Tensor(x, list(indices))


@rule()
def index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool, wrap: bool
) -> torch.Tensor:
    _refuse_negative(indices, wrap)
    return torch.ops.aten.index_put(x, list(indices), values, accumulate)


@rule()
def scatter(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor | complex) -> torch.Tensor:
    return torch.scatter(x, dim, index, src)


@rule()
def scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    return torch.scatter_add(x, dim, index, src)


@rule()
def scatter_reduce(
    x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, include_self: bool
) -> torch.Tensor:
    return torch.scatter_reduce(x, dim, index, src, reduce, include_self=include_self)


@rule()
def index_add(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, alpha: complex) -> torch.Tensor:
    return torch.index_add(x, dim, index, src, alpha=alpha)


@rule()
def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, wrap: bool) -> torch.Tensor:
    index = torch.where(index < 0, index + x.shape[dim], index) if wrap else index
    return torch.index_copy(x, dim, index, src)


@rule()
def index_reduce(
    x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, include_self: bool
) -> torch.Tensor:
    return torch.index_reduce(x, dim, index, src, reduce, include_self=include_self)


@rule()
def slice_scatter(x: torch.Tensor, src: torch.Tensor, dim: int, start: int, end: int, step: int) -> torch.Tensor:
    return torch.slice_scatter(x, src, dim, start, end, step)


@rule()
def select_scatter(x: torch.Tensor, src: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    return torch.select_scatter(x, src, dim, index)


@rule()
def diagonal_scatter(x: torch.Tensor, src: torch.Tensor, offset: int, dim1: int, dim2: int) -> torch.Tensor:
    return torch.diagonal_scatter(x, src, offset, dim1, dim2)


@rule()
def as_strided_scatter(
    x: torch.Tensor, src: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    return torch.as_strided_scatter(x, src, sizes, strides, offset)


@rule()
def masked_scatter(x: torch.Tensor, mask: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    return torch.masked_scatter(x, mask, src)


@rule()
def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.take(x, index)


@rule()
def put(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor, accumulate: bool) -> torch.Tensor:
    return torch.put(x, index, src, accumulate)


@rule()
def roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int]) -> torch.Tensor:
    return torch.roll(x, shifts, dims)


@rule()
def tril(x: torch.Tensor, diagonal: int) -> torch.Tensor:
    return torch.tril(x, diagonal)


@rule()
def triu(x: torch.Tensor, diagonal: int) -> torch.Tensor:
    return torch.triu(x, diagonal)


@rule()
def searchsorted(
    sorted: torch.Tensor, values: torch.Tensor | complex, right: bool, out_int32: bool, sorter: torch.Tensor | None
) -> torch.Tensor:
    return torch.searchsorted(sorted, values, right=right, out_int32=out_int32, sorter=sorter)


@rule()
def bucketize(x: torch.Tensor | complex, boundaries: torch.Tensor, right: bool, out_int32: bool) -> torch.Tensor:
    return torch.bucketize(x, boundaries, right=right, out_int32=out_int32)


@rule()
def nonzero(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x)


@rule()
def masked_select(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x, mask)


@rule()
def repeat_interleave(repeats: torch.Tensor, output_size: int | None) -> torch.Tensor:
    return torch.repeat_interleave(repeats, output_size=output_size)


@rule()
def unique(x: torch.Tensor, sorted: bool, return_inverse: bool, return_counts: bool) -> tuple[torch.Tensor, ...]:
    return unique2(x, sorted, return_inverse, return_counts)


@rule()
def bincount(x: torch.Tensor, weights: torch.Tensor | None, minlength: int) -> torch.Tensor:
    return torch.bincount(x, weights, minlength)
