"""Batched products whose second matrix is the same for all batches become one product of all rows.

That is what eager's `linear` and `matmul` make of an input of three dimensions that is not contiguous (nn.MultiheadAttention turns
batch and length round) where no gradients are asked for: they save the copy and run a small product for each batch. Here the loop that
computes the rows writes them in the order of the product, or the product is taken in the order in which they lie in memory. Where a
bias is added to the product and nothing else reads it, the library adds the bias.
"""

from typing import Any

from tracework_primops import GraphBuilder, Kind, PrimGraph, PrimValue, prims

from ..ir.index import is_contiguous, same
from .rewrites import rewritten

TURNED = (1, 0, 2)


def fold_products(graph: PrimGraph) -> PrimGraph:
    """The graph with such products folded; the same object where there are none."""
    return rewritten(graph, _folds, _rewrite)


def _folds(node: Any) -> bool:
    return node.target is prims.bmm and _is_repeated(node.args[1]) and _rows(node.args[0]) is not None


def _is_repeated(node: Any) -> bool:
    return node.target is prims.expand and node.args[0].meta["spec"].ndim == 2


def _rows(a: Any) -> Any:
    """The node whose rows are multiplied: `a`, or what `a` is with the first two axes turned round; None where that would be copied."""
    if _row_major(a):
        return a
    if a.target is not prims.permute or tuple(d % 3 for d in a.args[1]) != TURNED:
        return None
    base = a.args[0]
    if getattr(base.target, "kind", None) is Kind.POINTWISE and len(base.users) == 1 and len(a.users) == 1:
        return a
    return base if _row_major(base) else None


def _row_major(node: Any) -> bool:
    return is_contiguous(node.meta["spec"].sizes, node.meta["spec"].strides)


def _rewrite(node: Any) -> None:
    graph = node.graph
    a, b = node.args[0], node.args[1].args[0]
    rows = _rows(a)
    added = _added_bias(node)
    last = node if added is None else added[0]
    builder = GraphBuilder(graph)
    builder.origin = node.meta.get("origin")
    with graph.inserting_before(last), builder:
        x, matrix = PrimValue(rows.meta["spec"], rows), PrimValue(b.meta["spec"], b)
        outer, inner, length = x.sizes
        flat = prims.reshape(x, (outer * inner, length))
        if added is None:
            result = prims.mm(flat, matrix)
        else:
            result = prims.addmm(PrimValue(added[1].meta["spec"], added[1]), flat, matrix)
        result = prims.reshape(result, (outer, inner, matrix.sizes[1]))
        if rows is not a:
            result = prims.permute(result, TURNED)
    result.node.meta["spec"] = last.meta["spec"]
    last.replace_all_uses_with(result.node)
    for old in dict.fromkeys((last, node)):
        graph.erase_node(old)


def _added_bias(node: Any) -> tuple[Any, Any] | None:
    """(the sum, the bias) where a row is added to the product, and nothing else reads it."""
    if len(node.users) != 1:
        return None
    (total,) = node.users
    if total.target is not prims.add or len(total.args) != 2:
        return None
    bias = total.args[1] if total.args[0] is node else total.args[0]
    spec = bias.meta.get("spec") if hasattr(bias, "meta") else None
    if not hasattr(spec, "strides") or spec.ndim != 1 or spec.dtype != node.meta["spec"].dtype:
        return None
    return (total, bias) if same(spec.sizes[0], node.meta["spec"].sizes[2]) else None
