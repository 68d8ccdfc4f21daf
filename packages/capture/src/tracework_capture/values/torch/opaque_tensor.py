"""Tensors that no graph holds: nested and sparse ones, those of subclasses with a __torch_dispatch__. They are passed on, stored, compared by
`is` and asked for their class; what is done with one breaks the graph, and is left to plain Python."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from ... import _torch
from ...errors import BreakGraph
from ...sources import Source
from ..protocol.value import Frame, HeldValue, Value


def foreign_tensor(frame: Frame, obj: torch.Tensor, source: Source, why: tuple[str, ...]) -> Value:
    """The value of an existing one; why: (reason id, detail) of the break that its use is."""
    cls = type(obj)
    asked = frame.services.torch_functions_on and overrides_torch_function(cls)

    def is_foreign(value: torch.Tensor) -> bool:
        """the tensor is one that no graph holds"""
        if type(value) is not cls or cls is torch.Tensor and why_foreign(value) is None:
            return False
        return asked == (overrides_torch_function(cls) and _torch.modes.torch_functions_are_on())

    frame.guard("PREDICATE", source, is_foreign)
    return ForeignTensor(obj, source, why, asked)


def overrides_torch_function(cls: Any) -> bool:
    """Whether functions of torch hand calls with tensors of this class to it."""
    return cls.__torch_function__ not in (torch.Tensor.__torch_function__, _torch.modes.disabled_torch_function)


def why_foreign(tensor: torch.Tensor) -> tuple[str, ...] | None:
    """(reason id, what the tensor is) where no graph holds a tensor of class Tensor, or a parameter; else None."""
    if tensor.layout is not torch.strided:
        return "tensor_layout", f"a tensor of layout {tensor.layout}"
    if tensor.is_nested:
        return "tensor_layout", "a nested tensor"
    if _torch.autograd.is_of_a_transform(tensor):
        return "tensor_layout", "what a transform of torch.func made of a tensor, without memory of its own"
    if tensor._is_zerotensor():
        return "tensor_layout", "zeros without memory, as some gradients of gradients are"
    return None


class ForeignTensor(HeldValue):
    """One of them, which exists already."""

    is_unique = True

    def __init__(self, obj: torch.Tensor, source: Source, why: tuple[str, ...], overrides_torch_function: bool) -> None:
        super().__init__(obj, source)
        self.why = why
        self.overrides_torch_function = overrides_torch_function

    def used(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Any operation."""
        reason, what = self.why
        raise BreakGraph(reason, f"{self.source} is {what}")

    hash_key = truth = getattr = setattr = delattr = getitem = setitem = delitem = call = call_method = iterate = used
    unpack = length = contains = binary = compare = unary = as_graph_arg = used
    example = node = property(used)  # of a value that is taken for a tensor
