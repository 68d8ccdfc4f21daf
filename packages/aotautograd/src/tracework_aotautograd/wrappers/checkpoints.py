"""What a checkpoint writes to inputs is written again by the backward that computes the checkpoint anew."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..signature import Repeated

__all__ = ["write_again"]


def write_again(
    writes: Sequence[Repeated], tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor], missing: int
) -> None:
    """In the program's order. tensors: one for each write; values: for those that have one; missing: the tangents that are undefined."""
    waiting = iter(values)
    with torch.no_grad():
        for write, tensor in zip(writes, tensors, strict=True):
            value = None if write.value is None else next(waiting)
            if not write.tangents & ~missing:
                continue
            for _ in range(write.times):
                if value is None:
                    tensor.add_(write.number)
                else:  # as the operator does, which counts no version
                    tensor.data.mul_(1 - write.number).add_(value, alpha=write.number)
