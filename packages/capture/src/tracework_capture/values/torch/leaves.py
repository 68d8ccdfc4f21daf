"""Which tensors are leaves of autograd."""

from __future__ import annotations

from typing import Any

import torch

from ..._torch.modes import without_dispatch
from ...sources import Attr
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame


def is_new_leaf(example: Any) -> bool:
    """Whether the program asked this tensor for its gradient; a view made under no_grad only says what its base says."""
    return example.requires_grad and not (example._is_view() and example._base.requires_grad) and example.is_leaf


def leaf_of(frame: Frame, tensor: AbstractTensor) -> bool:
    """Whether a tensor is a leaf. Of an input that requires a gradient the program says so, and it is guarded."""
    real: Any = tensor.obj
    if real is None or not real.requires_grad or not tensor.example.requires_grad:
        return tensor.is_leaf()
    if tensor.overrides_torch_function:  # which would see the guard read the attribute
        found: bool = real.is_leaf
        frame.guard("PREDICATE", tensor.source, is_leaf_without_dispatch if found else is_result_without_dispatch)
        return found
    return bool(frame.wrap(real.is_leaf, Attr(tensor.source, "is_leaf")).constant())


@without_dispatch
def is_leaf_without_dispatch(tensor: torch.Tensor) -> bool:
    """The tensor is a leaf"""
    return tensor.is_leaf


@without_dispatch
def is_result_without_dispatch(tensor: torch.Tensor) -> bool:
    """The tensor is no leaf"""
    return not tensor.is_leaf
