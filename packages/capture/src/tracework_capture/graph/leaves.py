"""Functions of operators that nodes call for leaves: tensors that gradients accumulate into."""

from __future__ import annotations

from typing import Any

import torch

from .._torch import make_subclass

__all__ = ["copy_like", "leaf", "with_data"]


def leaf(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """The tensor that a parameter is: the parameter itself where the graph runs as it is, since history leads to it."""
    made = data.detach()
    if type(made) is torch.Tensor:
        return make_subclass(torch.nn.Parameter, made, requires_grad)
    return made.requires_grad_(requires_grad)


def copy_like(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """A copy of a gradient, laid out as its leaf."""
    return torch.empty_like(leaf, requires_grad=False).copy_(gradient)


class _WithData(torch.autograd.Function):
    """The data, with the history of the tensor."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.data  # which is no view of it

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def with_data(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """What the tensor is once it was given other data of its kind, in whatever grad mode."""
    with torch.enable_grad():
        found: torch.Tensor = _WithData.apply(tensor, data)
        return found
