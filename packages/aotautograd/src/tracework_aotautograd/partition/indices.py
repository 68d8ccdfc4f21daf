"""Indices of pools that only gradients read are kept for these in as few bits as an index into the image takes."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor

from ..nodes import called

__all__ = ["narrow_indices"]

aten = torch.ops.aten
POOLS: Mapping[object, tuple[object, int]] = {
    aten.max_pool2d_with_indices.default: (aten.max_pool2d_with_indices_backward.default, 2),
    aten.max_pool3d_with_indices.default: (aten.max_pool3d_with_indices_backward.default, 3),
    aten.adaptive_max_pool2d.default: (aten.adaptive_max_pool2d_backward.default, 2),
    aten.adaptive_max_pool3d.default: (aten.adaptive_max_pool3d_backward.default, 3),
}
"""A pool -> its gradient, whose last argument the indices are, and the dims that they count."""
DTYPES: Mapping[int, torch.dtype] = {2**8: torch.uint8, 2**15: torch.int16, 2**31: torch.int32}
"""Elements of an image up to which -> the dtype of an index."""
ON = frozenset({"cuda"})
"""Devices where a loop gathers the gradients, which reads indices of any dtype; elsewhere a kernel of the library scatters them, by int64."""


def narrow_indices(graph: fx.Graph) -> None:
    """Changes a joint graph in place, where the pools' indices are nothing that the forward gives or reads."""
    for node in [n for n in graph.nodes if n.target in POOLS]:
        gradient, dims = POOLS[node.target]
        dtype = _dtype(node.args[0], dims)
        if dtype is not None:
            for item in [n for n in node.users if n.target is operator.getitem and n.args[1] == 1]:
                if item.users and all(user.target is gradient and item not in user.args[:-1] for user in item.users):
                    _narrow(graph, item, dtype)


def _dtype(image: Any, dims: int) -> torch.dtype | None:
    x = image.meta["val"]
    if not isinstance(x, FakeTensor) or x.is_symbolic or x.device.type not in ON:
        return None
    elements = prod(x.shape[-dims:])
    return next((dtype for most, dtype in DTYPES.items() if elements <= most), None)


def _narrow(graph: fx.Graph, indices: fx.Node, dtype: torch.dtype) -> None:
    users, made = list(indices.users), indices
    for one in (dtype, indices.meta["val"].dtype):
        with graph.inserting_after(made):
            made = called(graph, indices, aten._to_copy.default, made, dtype=one)
    for user in users:
        user.replace_input_with(indices, made)
