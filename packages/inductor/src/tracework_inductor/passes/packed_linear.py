"""Linear layers of CPU inference get their weights in the library's own layout, with the bias added inside.

The library's product lays the matrix out anew at each call, for kernels that a packed matrix does not need. As with convolutions, what is
made of static inputs alone is kept by the runtime until the bytes of an input change (tracework_runtime.packed). That has to cost less
than it saves: see PAYS and PAYS_READ. Products that our own kernel is as fast for, with nothing kept, are left (lowering/cpu_products.py).

Activations and sums that follow are left to our loops. The library's are no faster inside of a product (on 128x768x768 and 512x768x3072
within 2 % of a pass after it, which a loop shares with what else is computed), and relu, hardtanh and hardsigmoid lose NaNs there.
"""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from tracework_primops import Kind, Op, PrimGraph, Tag, prims
from tracework_runtime.page_watch import can_watch

from .. import _torch
from ..lowering.cpu_products import own_product
from ..lowering.layout import is_row_major, is_static
from ..lowering.vector_products import vector_products
from .rewrites import rewritten
from .static_values import MAX_TEXT, Derivation, erase_with_operands, static_inputs

PACKED = Op(
    "packed_linear",
    "packed_linear(x, sources, make, label)",
    (),
    1,
    Kind.LIBRARY,
    frozenset({Tag.COMPUTE}),
    "the product of x with the matrix that make(*sources) gives, plus its bias",
    "matmul",
)
"""Made by this pass alone, and lowered by lowering/matmul.py; never called."""

PAYS: Mapping[torch.dtype, tuple[range, int]] = {
    torch.float32: (range(4, sys.maxsize), 1 << 18),
    torch.bfloat16: (range(1, 129), 1 << 18),
}
"""dtype -> rows for which packing pays, and from how many elements of the matrix on, where the kernel says whether it was written to.

On one core of an EPYC with AVX-512, microseconds of addmm and of the packed product, 768x3072: float32, 1 row 156 and 152, 8 rows 830 and 354, 64
4993 and 2945, 512 70985 and 61296; bfloat16 190 and 81, 304 and 189, 1520 and 1349, 15467 and 14973, which is not worth a second copy. The
call itself takes 10 more, the look at the weights 6: 384x384 in bfloat16 takes 46 and 49 with one row, 512x512 55 and 53, 4096x1024 536 and 286.
Of AMD's processors it is float32 with fewer than 16 rows, on two cores with 512-bit vectors, and with oneDNN kept to 256: 4x768x768 117, 46 and
56, 8x2048x1000 640, 261 and 387, 8x768x3072 740, 328 and 454, without the look.
"""
PAYS_READ: Mapping[torch.dtype, tuple[range, int]] = {torch.float32: (range(16, sys.maxsize), 1 << 24)}
"""dtype -> rows, and multiplications, for which it pays where the matrix is read for that: at 30 GB/s, in bfloat16 as long as is saved."""


def pack_linears(graph: PrimGraph) -> PrimGraph:
    """The graph with packed linear layers; the same object where there are none."""
    if graph.role != "inference":
        return graph
    static, loops = static_inputs(graph), vector_products(graph.graph, graph.role)
    return rewritten(
        graph,
        lambda node: node not in loops and _pays(node, graph.symbols) and _made(node, static) is not None,
        lambda node: _rewrite(node, static),
    )


def _pays(node: Any, symbols: Any) -> bool:
    """Whether this is a product of the library's linear layer that is faster with a packed matrix."""
    if node.target not in (prims.mm, prims.addmm) or any(v != 1 for v in (*node.args[3:], *node.kwargs.values())):
        return False
    *_, x, matrix = _operands(node)
    spec, sizes = node.meta["spec"], (*x.meta["spec"].sizes, matrix.meta["spec"].sizes[1])
    if spec.device.type != "cpu" or spec.dtype not in PAYS or not is_static(sizes) or not is_row_major(spec.sizes, spec.strides):
        return False
    if own_product(spec, x.meta["spec"], matrix.meta["spec"], symbols):
        return False
    return _is_large(spec.dtype, *sizes) and _torch.has_packed_linear(spec.dtype)


def _is_large(dtype: torch.dtype, rows: int, inner: int, columns: int) -> bool:
    number, elements = PAYS[dtype]
    if rows in number and inner * columns >= elements and can_watch():
        return True
    number, work = PAYS_READ.get(dtype, (range(0), 0))
    return rows in number and rows * inner * columns >= work


def _operands(node: Any) -> tuple[Any, ...]:
    """(bias,) x, matrix."""
    return tuple(node.args[: 3 if node.target is prims.addmm else 2])


def _made(node: Any, static: set[str]) -> tuple[str, list[Any]] | None:
    """The text of (matrix, bias), and the inputs that it is about; None where either depends on anything else."""
    *bias, _, matrix = _operands(node)
    if bias and tuple(bias[0].meta["spec"].sizes) != tuple(node.meta["spec"].sizes[1:]):
        return None
    derived = Derivation(static)
    texts = [derived.text(value) for value in (matrix, *bias)]
    text = f"({texts[0]}, {texts[1] if bias else None})"
    return (text, derived.sources) if None not in texts and len(text) <= MAX_TEXT else None


def _rewrite(node: Any, static: set[str]) -> None:
    found = _made(node, static)
    assert found is not None
    text, sources = found
    with node.graph.inserting_before(node):
        new = node.graph.call_function(PACKED, (_operands(node)[-2], tuple(sources), text, node.name))
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    erase_with_operands(node)


__all__ = ["PACKED", "pack_linears"]
