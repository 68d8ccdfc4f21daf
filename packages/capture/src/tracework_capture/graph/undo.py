"""What a graph wrote to inputs is taken back, where the frame runs again as plain Python after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .. import _torch

if TYPE_CHECKING:
    from torch import fx

__all__ = ["MOST_KEPT", "can_be_put_back", "contents_of", "put_back"]

MOST_KEPT = 1 << 16
"""Bytes of an input that are copied before each call, for the case that the graph raises or a condition does not hold."""

Kept = list[tuple[torch.Tensor, torch.Tensor, int | None, tuple[Any, ...]]]


def can_be_put_back(node: fx.Node, surely: bool) -> bool:
    """Whether what the graph writes to an input can be taken back: small, on the CPU, and without a history that is written along.

    surely: not only where open sizes turn out to be small, and each element has a place of its own.
    """
    from tracework_primops.broadcasting import is_dense  # primops is imported when the first graph is made

    example: Any = node.meta["example_value"]
    spec = example.spec
    if spec.device.type != "cpu" or not example.is_leaf or node.meta["binding"].role not in ("tensor", "buffer", "parameter"):
        return False
    if spec.is_symbolic:
        return not surely
    dense = is_dense(spec.sizes, spec.strides)
    return spec.numel() * spec.dtype.itemsize <= MOST_KEPT and (dense or not surely)


def contents_of(tensors: list[torch.Tensor]) -> Kept | None:
    """Copies of what the tensors hold, with their versions and layouts; None when one is large, or shows an element twice."""
    kept: Kept = []
    for tensor in tensors:
        places = once_each(tensor.detach())
        if tensor.numel() * tensor.element_size() > MOST_KEPT or torch._debug_has_internal_overlap(places) == 1:
            return None
        layout = tensor.size(), tensor.stride(), tensor.storage_offset()
        kept.append((tensor, places.clone(), None if tensor.is_inference() else tensor._version, layout))
    return kept


def put_back(kept: Kept) -> None:
    """Gives the tensors what they held before, as if nobody had written to them."""
    with torch.no_grad():
        for tensor, content, version, layout in kept:
            if (tensor.size(), tensor.stride(), tensor.storage_offset()) != layout:
                tensor.as_strided_(*layout)
            once_each(tensor).copy_(content)
            if version is not None:
                _torch.set_version(tensor, version)


def once_each(tensor: torch.Tensor) -> torch.Tensor:
    """An expanded tensor without its repetitions."""
    for dim, (size, stride) in enumerate(zip(tensor.size(), tensor.stride())):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor
