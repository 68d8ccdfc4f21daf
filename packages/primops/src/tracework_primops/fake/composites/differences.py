"""Composites: torch.gradient, differences divided by the distances between samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .registry import composite

Along = Callable[[torch.Tensor, int, Any, int], torch.Tensor]


def _even(x: torch.Tensor, dim: int, step: complex, edge_order: int) -> torch.Tensor:
    """Samples at the same distance."""

    def at(start: int, end: int | None) -> torch.Tensor:
        return torch.ops.aten.slice.Tensor(x, dim, start, end)

    middle = (at(2, None) - at(0, -2)) / step / 2
    if edge_order == 1:
        first, last = at(1, 2) - at(0, 1), at(-1, None) - at(-2, -1)
    else:
        first = at(0, 1) * -1.5 + at(1, 2) * 2 - at(2, 3) * 0.5
        last = at(-3, -2) * 0.5 - at(-2, -1) * 2 + at(-1, None) * 1.5
    return torch.cat([first / step, middle, last / step], dim)


def _uneven(x: torch.Tensor, dim: int, positions: torch.Tensor, edge_order: int) -> torch.Tensor:
    """Samples at given positions."""
    steps = positions[1:] - positions[:-1]
    shape = [-1 if d == dim else 1 for d in range(x.dim())]

    def at(start: int, end: int | None) -> torch.Tensor:
        return torch.ops.aten.slice.Tensor(x, dim, start, end)

    def weighted(weights: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> torch.Tensor:
        (a, b, c), (f, g, h) = weights, parts
        return a * f + b * g + c * h

    d, e = steps[:-1], steps[1:]
    inner = -e / (d * (d + e)), (e - d) / (d * e), d / (e * (d + e))
    middle = weighted([w.view(shape) for w in inner], [at(0, -2), at(1, -1), at(2, None)])
    if edge_order == 1:
        first, last = (at(1, 2) - at(0, 1)) / steps[0], (at(-1, None) - at(-2, -1)) / steps[-1]
    else:
        d, e = steps[0], steps[1]
        weights = -(2.0 * d + e) / (d * (d + e)), (d + e) / (d * e), -d / (e * (d + e))
        first = weighted(weights, [at(0, 1), at(1, 2), at(2, 3)])
        d, e = steps[-2], steps[-1]
        weights = e / (d * (d + e)), -(e + d) / (d * e), (2 * e + d) / (e * (e + d))
        last = weighted(weights, [at(-3, -2), at(-2, -1), at(-1, None)])
    return torch.cat([first, middle, last], dim)


def _gradient(
    along: Along, x: torch.Tensor, spacing: Any, dims: int | Sequence[int] | None, edge_order: int
) -> list[torch.Tensor]:
    wanted = list(range(x.dim())) if dims is None else [dims] if isinstance(dims, int) else list(dims)
    if not all(-x.dim() <= d < x.dim() for d in wanted) or not (x.is_floating_point() or x.is_complex()):
        return NotImplemented
    wanted = [d % x.dim() for d in wanted]
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [1.0 if spacing is None else spacing] * len(wanted)
    fits = all(x.shape[d] > edge_order for d in wanted)  # else eager's errors
    if not fits or edge_order not in (1, 2) or len(steps) != len(wanted) or len(set(wanted)) != len(wanted):
        return NotImplemented
    return [along(x, d, step, edge_order) for d, step in zip(wanted, steps)]


@composite("gradient.scalarint", "gradient.scalararray", "gradient.array", "gradient.scalarrayint", "gradient.scalarrayarray")
def gradient(
    x: torch.Tensor, *, spacing: Any = None, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> list[torch.Tensor]:
    return _gradient(_even, x, spacing, dim, edge_order)


@composite("gradient.tensorarrayint", "gradient.tensorarray")
def gradient_at(
    x: torch.Tensor, *, spacing: Any, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> list[torch.Tensor]:
    return _gradient(_uneven, x, spacing, dim, edge_order)
