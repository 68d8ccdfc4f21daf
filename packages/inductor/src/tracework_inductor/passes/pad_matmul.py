"""Products whose inner dimension, or number of rows or columns, is unaligned are computed on padded matrices.

Aligned rows alone (lowering/row_padding.py) are not enough: the library takes its kernels with 16-byte loads only when the
extents along memory, the columns of the result, the inner dimension, and the rows of the result where the first matrix is
transposed, are multiples of 16 bytes themselves. So the operands get zeros (which add nothing to a sum) and the result is cut to
size. Decided by arithmetic saved against bytes moved. A matrix is padded once for all products that read it: the gradient of
logits is the first matrix of one product and, transposed, of another.
"""

from collections.abc import Mapping
from typing import Any

from tracework_primops import PrimGraph, prims

from ..ir.index import Size, same
from ..lowering.product_pieces import pieces
from ..product_costs import COPY, LAUNCH, ROW_BYTES, SLOWER, SLOWER_ROWS, alignment
from .rewrites import built_before, rewritten, transposed, value_of

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
    return _saved(a, b, out) + _saved_by_rows(node.args[first], out) > LEAST_GAIN


def _saved_by_rows(first: Any, out: Any) -> float:
    """The same for the rows of the result, where the first matrix has them along memory.

    Such a matrix is copied for rows that start aligned in any case, by this pass or by lowering/row_padding.py.
    """
    if not _pads_rows(first):
        return 0.0
    (inner, rows), columns = first.args[0].meta["spec"].sizes, out.sizes[-1]
    return SLOWER_ROWS * inner * rows * columns - 2 * COPY * out.dtype.itemsize * out.numel()


def _pads_rows(first: Any) -> bool:
    """Whether the first matrix is the transpose of one whose rows, which become the product's, are unaligned."""
    if (base := transposed(first)) is None:
        return False
    spec = base.meta["spec"]
    return spec.ndim == 2 and same(spec.strides[-1], 1) and alignment(spec.sizes[-1], spec.dtype.itemsize) < ROW_BYTES


def _saved(a: Any, b: Any, out: Any) -> float:
    """Femtoseconds saved less femtoseconds of the copies, of the inner dimension and the columns."""
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
    first_node = node.args[first]
    with built_before(node):
        a, b = (value_of(n) for n in node.args[first : first + 2])
        inner, columns = -a.sizes[-1] % 8, -b.sizes[-1] % 8
        rows = -a.sizes[-2] % 8 if _pads_rows(first_node) else 0
        lead = (0,) * (a.ndim - 2)
        a = _padded(node, a, (*lead, rows, inner))
        b = _padded(node, b, (*lead, inner, columns))
        bias = [value_of(n) for n in node.args[:first]]
        bias = [_padded(node, x, (columns,)) for x in bias]
        result = node.target(*bias, a, b, *node.args[first + 2 :])
        for dim, more in ((result.ndim - 2, rows), (result.ndim - 1, columns)):
            if more:
                result = prims.slice(result, dim, 0, node.meta["spec"].sizes[dim], 1)
    result.node.meta["spec"] = node.meta["spec"]
    node.replace_all_uses_with(result.node)
    graph.erase_node(node)


def _padded(node: Any, value: Any, more: tuple[Size, ...]) -> Any:
    """The value with zeros after each dim, as it lies in memory and as it was padded before `node` if it was."""
    if not any(more):
        return value
    source = value.node
    if (base := transposed(source)) is not None:
        return prims.permute(_padded(node, value_of(base), more[::-1]), (1, 0))
    widths = tuple((0, n) for n in more)
    for user in source.users:
        if user.target is prims.pad and user.args == (source, widths, 0) and user < node:
            return value_of(user)
    return prims.pad(value, widths, 0)
