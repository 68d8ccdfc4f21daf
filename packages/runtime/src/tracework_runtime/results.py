"""The tensors that host programs make: their memory, and what is done to those that they return."""

from __future__ import annotations

import torch

from . import _torch

__all__ = ["empty_cpu", "empty_cuda", "unwritten"]

# (sizes, strides, dtype): memory that a kernel fills, on the CPU or the current GPU, without the ways through torch that do not matter for it
empty_cpu, empty_cuda = _torch.empty_strided_cpu, _torch.empty_strided_cuda


def unwritten(*tensors: torch.Tensor) -> None:
    """New results are at version 0, as eager's are, whatever wrote to their memory; those of inference mode have no versions."""
    counted = tuple([t for t in tensors if not t.is_inference()])
    _torch.set_versions(counted, (0,) * len(counted))
