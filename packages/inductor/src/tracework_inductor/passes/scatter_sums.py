"""A table's gradient is added to where the rest of it is: what is scattered into zeros, which are then added to a value, goes into that value.

So are the gradients of a table that several things read: embeddings whose table is the matrix of the last product, too. On a CPU that saves
the zeros, the pass over both and the memory of the second; on a GPU, additions to one element are atomic, and zeros are in its cache.
"""

from typing import Any

import torch
from tracework_primops import PrimGraph, prims

from ..ir.index import same_all
from ..lowering.layout import strides_equal
from .rewrites import built_before, rewritten, value_of

HALVES = frozenset({torch.bfloat16, torch.float16})
"""Each term is rounded where it is added: small ones are lost one by one in a value that is large already, but not in zeros."""


def add_scattered(graph: PrimGraph) -> PrimGraph:
    """The graph with such sums as one scatter; the same object where there are none."""
    return rewritten(graph, lambda node: _parts(node) is not None, _rewrite)


def _parts(node: Any) -> tuple[Any, Any] | None:
    """(what is scattered into zeros, what it is added to), or None."""
    if node.target is not prims.add or node.meta["spec"].device.type != "cpu" or len(node.args) != 2:
        return None
    if node.meta["spec"].dtype in HALVES:
        return None
    for scattered, other in (node.args[::-1], node.args):
        if _is_into_zeros(scattered) and _lies_alike(other, node) and _lies_alike(scattered, node) and other is not scattered:
            return scattered, other
    return None


def _is_into_zeros(node: Any) -> bool:
    if getattr(node, "target", None) is not prims.index_put or len(node.users) != 1 or node.args[3:4] != (True,):
        return False
    zeros = node.args[0]
    return zeros.target is prims.full and zeros.args[1] == 0


def _lies_alike(value: Any, node: Any) -> bool:
    """Whether a value has the sum's elements, in the same places."""
    spec, wanted = getattr(value, "meta", {}).get("spec"), node.meta["spec"]
    if spec is None or not hasattr(spec, "strides"):  # a number
        return False
    return (
        (spec.dtype, spec.device) == (wanted.dtype, wanted.device)
        and same_all(spec.sizes, wanted.sizes)
        and strides_equal(spec.sizes, spec.strides, wanted.strides)
    )


def _rewrite(node: Any) -> None:
    found = _parts(node)
    assert found is not None
    scattered, other = found
    _, indices, values, *settings = scattered.args
    with built_before(node):
        total = prims.index_put(
            value_of(other), tuple(i if i is None else value_of(i) for i in indices), value_of(values), *settings
        )
    total.node.meta["spec"] = node.meta["spec"]
    node.replace_all_uses_with(total.node)
    zeros = scattered.args[0]
    for gone in (node, scattered, *(() if len(zeros.users) > 1 else (zeros,))):
        node.graph.erase_node(gone)


__all__ = ["add_scattered"]
