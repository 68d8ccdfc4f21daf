"""What a graph wrote to inputs is taken back, where the frame runs again as plain Python after it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch

if TYPE_CHECKING:
    from torch import fx

__all__ = ["MOST_KEPT", "can_be_put_back", "contents_of", "is_written_the_same_again", "put_back"]

MOST_KEPT = 1 << 16
"""Bytes of an input that are copied before each call, for the case that the graph raises or a condition does not hold."""

Kept = list[tuple[torch.Tensor, torch.Tensor | None, int | None, tuple[Any, ...]]]

OVERWRITES: frozenset[Any] = frozenset(
    {operator.setitem, "copy_", "fill_", "index_copy_", "index_fill_", "masked_fill_", "scatter_", "zero_"}
)
"""What gives elements of its first argument values that do not depend on what was there."""


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


def is_written_the_same_again(node: fx.Node) -> bool:
    """Whether a plain run after the graph gives an input what it would have had without the graph: what writes to it overwrites, and its
    memory is read only after the last write, as the caches of a model's layers are."""
    example: Any = node.meta["example_value"]
    if not example.is_leaf or node.meta["binding"].role not in ("tensor", "buffer", "parameter"):
        return False
    written, was_read = 0, False
    for user in node.graph.nodes:
        places = [i for i, given in enumerate(user.all_input_nodes) if any(s is example.storage for s in storages_of(given))]
        if not places or user.op == "output":
            continue
        if (
            user.target in OVERWRITES
            and places == [0]
            and user.args[0] is user.all_input_nodes[0]
            and "reduce" not in user.kwargs
        ):
            if was_read:
                return False
            written += 1
        else:
            was_read = was_read or not any(s is example.storage for s in storages_of(user))  # views read nothing
    return written == example.storage.version


def storages_of(node: fx.Node) -> list[Any]:
    """The memory that the result of a node lies in."""
    example = node.meta.get("example_value")
    parts = example if isinstance(example, (tuple, list)) else [example]
    return [part.storage for part in parts if isinstance(part, torch.Tensor)]


def contents_of(tensors: list[torch.Tensor], written_again: list[torch.Tensor]) -> Kept | None:
    """Copies of what the tensors hold, with their versions and layouts; None when one is large, or shows an element twice.

    Of what the plain run writes again, as the graph did, there is no copy.
    """
    kept: Kept = [(t, None, None if t.is_inference() else t._version, ()) for t in written_again]
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
            if content is not None:
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
