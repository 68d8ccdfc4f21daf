"""Composites: products and norms of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._torch import OpOverload
from .registry import Form, composite, torchs

aten = torch.ops.aten


@composite("kron")
def kron(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    ndim = max(a.dim(), b.dim())
    left, right = ([1] * (ndim - x.dim()) + list(x.shape) for x in (a, b))
    wide = a.reshape([n for size in left for n in (size, 1)]) * b.reshape([n for size in right for n in (1, size)])
    return aten._unsafe_view.default(wide, [m * n for m, n in zip(left, right)])


@composite("linalg_multi_dot")
def multi_dot(factors: Sequence[torch.Tensor]) -> torch.Tensor:
    first, last = factors[0], factors[-1]
    if len(factors) < 2 or any(x.dim() != 2 for x in factors[1:-1]) or not {first.dim(), last.dim()} <= {1, 2}:
        return NotImplemented  # eager's errors
    matrices = list(factors)
    matrices[0] = first.unsqueeze(0) if first.dim() == 1 else first
    matrices[-1] = last.unsqueeze(-1) if last.dim() == 1 else last
    sizes = [*first.shape[:-1], *last.shape[1:]]
    return _chain(matrices, _cheapest([matrices[0].shape[0], *(m.shape[1] for m in matrices)])).view(sizes)


def _cheapest(sizes: list[Any]) -> dict[tuple[int, int], int]:
    """Where to cut each run of factors into two, for the fewest multiplications."""
    count = len(sizes) - 1
    cost: dict[tuple[int, int], Any] = {(i, i): 0 for i in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            for k in range(i, j):
                found = cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if (i, j) not in cut or found < cost[i, j]:
                    cost[i, j], cut[i, j] = found, k
    return cut


def _chain(matrices: list[torch.Tensor], cut: dict[tuple[int, int], int]) -> torch.Tensor:
    def product(i: int, j: int) -> torch.Tensor:
        return matrices[i] if i == j else torch.mm(product(i, cut[i, j]), product(cut[i, j] + 1, j))

    return product(0, len(matrices) - 1)


@composite("linalg_matrix_norm")
def matrix_norm(
    x: torch.Tensor, order: float, dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    if abs(order) not in (1.0, 2.0, math.inf) or x.dim() < 2 or not all(-x.dim() <= d < x.dim() for d in dim):
        return NotImplemented
    rows, columns = (d % x.dim() for d in dim)
    if rows == columns or not (x.dtype.is_floating_point or x.dtype.is_complex):
        return NotImplemented
    summed, other = (rows, columns) if abs(order) == 1.0 else (columns, rows)
    sought = (rows, columns) if abs(order) == 2.0 else (other,)
    if any(isinstance(x.shape[d], int) and x.shape[d] == 0 for d in sought):
        return NotImplemented  # an extremum of nothing
    extremum = torch.amax if order > 0 else torch.amin
    if abs(order) == 2.0:
        return _of_singular_values(x if dtype is None else x.to(dtype), rows, columns, extremum, keepdim)
    sums = torch.linalg.vector_norm(x, 1.0, summed, keepdim, dtype=dtype)
    return extremum(sums, other - (other > summed and not keepdim), keepdim)


def _of_singular_values(
    x: torch.Tensor, rows: int, columns: int, extremum: Callable[..., torch.Tensor], keepdim: bool
) -> torch.Tensor:
    order = [d for d in range(x.dim()) if d not in (rows, columns)] + [rows, columns]
    found = extremum(torch.linalg.svdvals(x.permute(order)), -1, keepdim)
    return found.unsqueeze(-1).permute([order.index(d) for d in range(x.dim())]) if keepdim else found


def _counted_rank(func: OpOverload) -> Form:
    """The rank of a matrix as torch computes it, which for tensors is a sum that is written into a result made before: one write."""

    def matrix_rank(*args: Any, **kwargs: Any) -> torch.Tensor:
        rank = torchs(func, *args, **kwargs)
        if not rank.is_inference():
            torch.autograd.graph.increment_version(rank)
        return rank

    return matrix_rank


for _name in ("linalg_matrix_rank", *(f"linalg_matrix_rank.{n}" for n in ("tol_tensor", "atol_rtol_tensor", "atol_rtol_float"))):
    composite(_name, static=True)(_counted_rank(getattr(aten.linalg_matrix_rank, _name.partition(".")[2] or "default")))
