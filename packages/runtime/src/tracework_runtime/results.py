"""What host programs do to the tensors that they return."""

from __future__ import annotations

import torch

from . import _torch

__all__ = ["unwritten"]


def unwritten(*tensors: torch.Tensor) -> None:
    """New results are at version 0, as eager's are, whatever wrote to their memory; those of inference mode have no versions."""
    counted = tuple([t for t in tensors if not t.is_inference()])
    _torch.set_versions(counted, (0,) * len(counted))
