"""Log-probabilities from the largest element and the sum of each row: two numbers of a row are kept for the backward, which computes the rest
again from the scores, where `aten._log_softmax` could only be kept or run whole, with both of its passes."""

from __future__ import annotations

import functools
from collections.abc import Collection

import torch
from torch import fx

from ..nodes import called

__all__ = ["keep_statistics"]

aten = torch.ops.aten
HALVES = frozenset({torch.float16, torch.bfloat16})


def keep_statistics(graph: fx.Graph, devices: Collection[str]) -> None:
    """Changes a joint graph in place, on these types of devices, where a gradient reads log-probabilities of the forward."""
    for node in [n for n in graph.nodes if n.target is aten._log_softmax.default]:
        x = node.args[0].meta["val"]
        read = node.meta["phase"] == "forward" and any(user.meta.get("phase") == "backward" for user in node.users)
        # Where the scores lie in one piece: as the result does then.
        if read and x.device.type in devices and x.ndim and x.shape[node.args[1]] != 0 and x.is_contiguous():
            _take_apart(graph, node)


def _take_apart(graph: fx.Graph, node: fx.Node) -> None:
    """As the operator is computed: halves in float32, and rounded at the end."""
    x, dim, to_float = node.args

    call = functools.partial(called, graph, node)
    with graph.inserting_before(node):
        half = x.meta["val"].dtype in HALVES
        wide = call(aten._to_copy.default, x, dtype=torch.float32) if half else x
        shifted = call(aten.sub.Tensor, wide, call(aten.amax.default, wide, [dim], True))
        total = call(aten.sum.dim_IntList, call(aten.exp.default, shifted), [dim], True)
        result = call(aten.sub.Tensor, shifted, call(aten.log.default, total))
        if half and not to_float:
            result = call(aten._to_copy.default, result, dtype=x.meta["val"].dtype)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
