"""Batched products whose second matrix is the same for all batches become one product of all rows.

That is what eager's `linear` and `matmul` make of an input of three dimensions that is not contiguous (nn.MultiheadAttention turns
batch and length round) where no gradients are asked for: they save the copy and run a small product for each batch. Here the loop that
computes the rows writes them in the order of the product, or the product is taken in the order in which they lie in memory. Where a
bias is added to the product and nothing else reads it, the library adds the bias; also to other products, where a loop would do
nothing but add it.
"""

from typing import Any

from tracework_primops import Kind, PrimGraph, prims

from ..ir.index import is_contiguous, same
from ..lowering.row_padding import readers
from .rewrites import built_before, rewritten, value_of

TURNED = (1, 0, 2)


def fold_products(graph: PrimGraph) -> PrimGraph:
    """The graph with such products folded; the same object where there are none."""
    kinds = readers(graph.graph)
    graph = rewritten(graph, lambda n: _takes_bias(n, kinds), _rewrite_with_bias)
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


def _takes_bias(node: Any, kinds: Any) -> bool:
    if node.target is not prims.mm:
        return False
    added = _added_bias(_last_of_product(node))
    return added is not None and "loop" not in kinds[added[0]]


def _last_of_product(node: Any) -> Any:
    """The product as batches of rows: the last reshape of it that keeps its columns, where each is all that reads the one before."""
    while len(node.users) == 1:
        (user,) = node.users
        columns = node.meta["spec"].sizes[-1]
        if user.target is not prims.reshape or not user.args[1] or not same(user.args[1][-1], columns):
            break
        node = user
    return node


def _rewrite_with_bias(node: Any) -> None:
    last = _last_of_product(node)
    total, bias = _added_bias(last)  # type: ignore[misc]  # there is one, or nothing is rewritten
    with built_before(total):
        operands = [value_of(n) for n in (bias, *node.args)]
        result = prims.reshape(prims.addmm(*operands), total.meta["spec"].sizes)
    result.node.meta["spec"] = total.meta["spec"]
    total.replace_all_uses_with(result.node)
    old = [total]
    while old[-1] is not node:
        old.append(last)
        last = last.args[0]
    for gone in old:
        node.graph.erase_node(gone)


def _rewrite(node: Any) -> None:
    graph = node.graph
    a, b = node.args[0], node.args[1].args[0]
    rows = _rows(a)
    added = _added_bias(node)
    last = node if added is None else added[0]
    with built_before(last):
        x, matrix = value_of(rows), value_of(b)
        outer, inner, length = x.sizes
        flat = prims.reshape(x, (outer * inner, length))
        if added is None:
            result = prims.mm(flat, matrix)
        else:
            result = prims.addmm(value_of(added[1]), flat, matrix)
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
    if spec is None or not hasattr(spec, "strides") or spec.ndim != 1 or spec.dtype != node.meta["spec"].dtype:
        return None
    return (total, bias) if same(spec.sizes[0], node.meta["spec"].sizes[-1]) else None
