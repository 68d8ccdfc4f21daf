"""Which tensors are leaves of autograd."""

from __future__ import annotations

from ..._torch import unseen
from ...sources import Attr


def is_made_leaf(example):
    """Whether the program asked this tensor for its gradient; a view made under no_grad only says what its base says."""
    return example.requires_grad and not (example._is_view() and example._base.requires_grad) and example.is_leaf


def leaf_of(frame, tensor):
    """Whether a tensor is a leaf. Of an input that requires a gradient the program says so, and it is guarded."""
    if tensor.obj is None or not tensor.obj.requires_grad or not tensor.example.requires_grad:
        return tensor.is_leaf()
    if tensor.asks_its_class:  # which would see the guard read the attribute
        found = tensor.obj.is_leaf
        frame.guard("PREDICATE", tensor.source, is_leaf_unseen if found else is_result_unseen)
        return found
    return frame.wrap(tensor.obj.is_leaf, Attr(tensor.source, "is_leaf")).constant()


@unseen
def is_leaf_unseen(tensor):
    """The tensor is a leaf"""
    return tensor.is_leaf


@unseen
def is_result_unseen(tensor):
    """The tensor is no leaf"""
    return not tensor.is_leaf
