"""Products whose inner dimension or number of columns is unaligned are computed on padded matrices.

Aligned rows alone (lowering/row_padding.py) are not enough: the library takes its kernels with 16-byte loads only when the
extents along memory, the columns of the result and the inner dimension, are multiples of 16 bytes themselves. So the operands get
zeros (which add nothing to a sum) and the result is cut to size. Decided by arithmetic saved against bytes moved.
"""

from collections.abc import Mapping
from typing import Any

from tracework_primops import GraphBuilder, PrimGraph, PrimValue, prims

from ..lowering.product_pieces import pieces
from ..product_costs import COPY, LAUNCH, ROW_BYTES, SLOWER, alignment
from .rewrites import rewritten

LEAST_GAIN = 4 * LAUNCH
"""What padding has to save: two operands and the result are moved by kernels of their own."""
PRODUCTS: Mapping[str, int] = {"mm": 0, "bmm": 0, "addmm": 1}
"""prim -> position of its first matrix."""


def pad_matmul(graph: PrimGraph) -> PrimGraph:
    """The graph with unaligned products padded where that pays; the same object where it never does."""
    apart = pieces(graph.graph)
    return rewritten(graph, lambda n: n not in apart and _pays(n), _rewrite)


def _pays(node: Any) -> bool:
    name = getattr(node.target, "name", None)
    if not isinstance(name, str) or name not in PRODUCTS:
        return False
    first = PRODUCTS[name]
    a, b, out = (n.meta["spec"] for n in (node.args[first], node.args[first + 1], node))
    if out.device.type != "cuda" or out.dtype.itemsize != 2 or not out.dtype.is_floating_point:
        return False
    if not all(isinstance(s, int) for spec in (a, b) for s in spec.sizes) or 0 in a.sizes or 0 in b.sizes:
        return False
    if name == "addmm" and (node.args[0].meta["spec"].ndim != 1 or tuple(node.args[3:5]) != (1, 1)):
        return False
    return _saved(a, b, out) > LEAST_GAIN


def _saved(a: Any, b: Any, out: Any) -> float:
    """Femtoseconds saved less femtoseconds of the copies."""
    size = out.dtype.itemsize
    rows, inner, columns = a.sizes[-2], a.sizes[-1], b.sizes[-1]
    batch = out.numel() // (rows * columns)
    aligned = min(alignment(inner, size), alignment(columns, size))
    if aligned >= ROW_BYTES:
        return 0.0
    copied = 0
    if alignment(inner, size) < ROW_BYTES:
        copied += a.numel() + b.numel()
    elif alignment(columns, size) < ROW_BYTES:
        copied += b.numel()
    if alignment(columns, size) < ROW_BYTES:
        copied += out.numel()
    return SLOWER[out.device.type, size][aligned] * batch * rows * inner * columns - 2 * COPY * size * copied


def _rewrite(node: Any) -> None:
    graph = node.graph
    first = PRODUCTS[node.target.name]
    builder = GraphBuilder(graph)
    builder.origin = node.meta.get("origin")
    with graph.inserting_before(node), builder:
        a, b = (PrimValue(n.meta["spec"], n) for n in node.args[first : first + 2])
        inner, columns = -a.sizes[-1] % 8, -b.sizes[-1] % 8
        lead = ((0, 0),) * (a.ndim - 2)
        a = prims.pad(a, (*lead, (0, 0), (0, inner)), 0) if inner else a
        b = prims.pad(b, (*lead, (0, inner), (0, columns)), 0) if inner or columns else b
        bias = [PrimValue(n.meta["spec"], n) for n in node.args[:first]]
        bias = [prims.pad(x, ((0, columns),), 0) if columns else x for x in bias]
        result = node.target(*bias, a, b, *node.args[first + 2 :])
        if columns:
            result = prims.slice(result, result.ndim - 1, 0, node.meta["spec"].sizes[-1], 1)
    result.node.meta["spec"] = node.meta["spec"]
    node.replace_all_uses_with(result.node)
    graph.erase_node(node)
