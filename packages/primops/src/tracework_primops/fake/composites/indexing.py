"""Composites: picking elements and cutting into pieces."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .registry import broadcast, composite, torchs

aten = torch.ops.aten


@composite("take_along_dim")
def take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    if dim is None:
        return x.view(-1).gather(0, indices.view(-1))
    if x.dim() != indices.dim() or indices.dtype is not torch.int64 or not -x.dim() <= dim < x.dim():
        return NotImplemented  # eager's errors
    dim %= x.dim()
    picked, given = list(x.shape), list(indices.shape)
    picked[dim], given[dim] = given[dim], picked[dim]
    index = indices.broadcast_to(broadcast(picked, indices.shape)).remainder(
        x.shape[dim]
    )  # as torch does with a dim, and without one not
    return x.broadcast_to(broadcast(given, x.shape)).gather(dim, index)


@composite("one_hot", static=True)
def one_hot(x: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """Row-major whatever the indices are: tensors, unlike their subclasses, are scattered into zeros, which counts as two writes; there
    are none of no indices. What torch makes of other tensors compares, and takes any class: a zero for each class refuses the others."""
    made = torchs(torch.ops.aten.one_hot.default, x.contiguous(), num_classes)
    if isinstance(made, torch.Tensor) and made.numel():
        zeros = x.new_zeros(()).expand(made.shape[-1])
        made = made + zeros.gather(0, x.reshape(-1)).view(x.shape).unsqueeze(-1)
        if not made.is_inference():
            torch.autograd.graph.increment_version([made, made])
    return made


@composite("unsafe_chunk")
def unsafe_chunk(x: torch.Tensor, chunks: int, dim: int = 0) -> Sequence[torch.Tensor]:
    if x.dim() == 0 or chunks <= 0:
        return NotImplemented
    size = x.shape[dim]
    step = (size + chunks - 1) // chunks
    if step == 0:
        return aten.unsafe_split_with_sizes.default(x, [0] * chunks, dim)
    return aten.unsafe_split.Tensor(x, step, dim)
