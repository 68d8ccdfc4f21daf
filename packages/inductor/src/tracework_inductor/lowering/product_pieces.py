"""Large products whose columns are unaligned and which leave the graph: computed in pieces of rows on a padded second matrix.

The library is quick only where the columns take a multiple of 16 bytes (passes/pad_matmul.py), and the caller gets rows without gaps.
A whole padded result beside the one that is given away would double the memory of the largest tensor there is, the logits of a language
model. So one piece of rows after the other is multiplied into padded memory, which torch's allocator gives to the next one, and copied.
"""

from typing import Any

import torch

from ..ir.buffer import BufferLayout
from ..ir.index import dot, is_contiguous
from ..ir.scalar_ops import ops
from ..product_costs import ROW_BYTES, alignment
from .row_padding import fast_axis, is_plain, padded_rows, prim_name, readers
from .value import Lazy, Strided, settled

LEAST_BYTES = 1 << 26
"""Smaller results are padded whole: their copies cost less than the launches of many small products."""
PIECES = 8
"""Eight pieces of 16384x768x50257 take 7 % more time than the whole on an H100, 16 pieces 9 %, 32 pieces 14 %."""
ROWS = 256
"""A piece has a multiple of so many rows, as the library's tiles have."""


def pieces(graph: Any) -> dict[Any, int]:
    """Products that are computed in pieces -> how many rows a piece has."""
    found = {node: rows for node in graph.nodes if (rows := _rows(node))}
    read_by = readers(graph) if found else {}
    return {node: rows for node, rows in found.items() if "output" in read_by[node]}


def _rows(node: Any) -> int:
    """Rows of a piece of a product that leaves the graph, or 0."""
    name, spec = prim_name(node), node.meta.get("spec")
    if name not in ("mm", "addmm") or spec.device.type != "cuda":
        return 0
    if spec.dtype.itemsize != 2 or not spec.dtype.is_floating_point:
        return 0
    inner = node.args[-1 if name == "mm" else 2].meta["spec"].sizes[0]
    if not all(isinstance(s, int) for s in (*spec.sizes, inner)) or not is_contiguous(spec.sizes, spec.strides):
        return 0
    if name == "addmm" and (node.args[0].meta["spec"].ndim != 1 or not is_plain(node)):
        return 0
    rows, columns = spec.sizes
    if alignment(inner, 2) < ROW_BYTES or alignment(columns, 2) >= ROW_BYTES or 2 * rows * columns < LEAST_BYTES:
        return 0
    return -(-rows // (PIECES * ROWS)) * ROWS


def product_in_pieces(low: Any, bias: Any, a: Any, b: Any, rows: int) -> Strided:
    """a @ b, plus a row if `bias` is not None, in memory laid out as the caller gets it."""
    a, b = low.realize(settled(a)), settled(b)
    (count, inner), columns = a.sizes, b.sizes[1]
    width = columns + -columns % (ROW_BYTES // 2)
    fast = fast_axis(b.sizes, b.strides) if isinstance(b, Strided) else 1
    b = low.realize_in(_widened(b, width), padded_rows((inner, width), 1 if fast is None else fast, 1))
    addend = [] if bias is None else [low.realize(_widened(settled(bias), width))]
    target = "torch.mm" if bias is None else "torch.addmm"
    layout = BufferLayout(a.dtype, a.device, (count, columns), (columns, 1))
    written = low.new_buffer(layout)
    for first in range(0, count, rows):
        sizes = (min(rows, count - first), inner)
        operands = [*addend, a.window(sizes, a.strides, a.offset + first * a.strides[0]), b]
        piece = low.extern(target, operands, out_form=target, sizes=(sizes[0], width), strides=(width, 1))
        base = written.name if first else None
        written = low.new_buffer(layout, "alias", base) if first else written
        low.pointwise_node(
            written,
            piece.load,
            (sizes[0], columns),
            lambda index, first=first: dot(index, layout.strides, first * columns),
            mutates=base,
        )
    return low.whole(written)


def _widened(value: Strided | Lazy, width: int) -> Lazy:
    """The value with zeros behind it along its last axis."""
    columns = value.sizes[-1]

    def inner(index: list[Any]) -> Any:
        inside = ops.lt(ops.index_expr(index[-1], torch.int64), ops.index_expr(columns, torch.int64))
        return ops.masked(inside, lambda: value.load(index), 0)

    return Lazy((*value.sizes[:-1], width), value.dtype, value.device, inner, 3, value.reads)


__all__ = ["pieces", "product_in_pieces"]
