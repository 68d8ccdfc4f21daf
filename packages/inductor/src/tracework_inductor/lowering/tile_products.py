"""Large products that the library computes, or a core of ours: loops beside the library's call, which say the same of values that are not in
memory yet. Which it is, is chosen after fusion (schedule/choice.py).

A core loads a matrix again for each tile of the other one's. So what it is computed from is computed again, too, and has to be little: casts,
scales, and what takes fewer bytes than the matrix, as quantised weights do.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from ..ir.buffer import BufferLayout, ExternNode, LoopNode
from ..ir.index import Size, constant_product, same
from ..ir.scalar_ops import ops
from ..options import InductorOptions
from ..schedule.matrix_product import OPERANDS
from .pointwise import elementwise
from .row_padding import PRODUCTS, prim_name
from .value import Lazy, Strided, TensorValue, settled
from .vector_products import multiplied, scaled, unscaled

MOST_COST = 8
"""Of an element that each tile computes again; of one whose loads take fewer bytes than it, MOST_COST_OF_FEWER_BYTES."""
MOST_COST_OF_FEWER_BYTES = 32
MOST_BYTES = 1.25
"""Loaded for a matrix, over its own: a scale of its rows is a little more."""


def tile_products(graph: Any, options: InductorOptions) -> frozenset[Any]:
    """Products of a graph for which there are loops beside the library's call."""
    if options.products == "library":
        return frozenset()
    return frozenset(n for n in graph.nodes if prim_name(n) in PRODUCTS and _is_one(n))


def _is_one(node: Any) -> bool:
    spec = node.meta.get("spec")
    if spec.device.type != "cuda" or spec.dtype not in OPERANDS:
        return False
    a, b = (node.args[n].meta["spec"].sizes for n in PRODUCTS[prim_name(node)])
    return not any(isinstance(s, int) and s < 1 for s in (*a, *b)) and not any(same(s, 1) for s in (a[-2], a[-1], b[-1]))


def with_tiles(
    low: Any,
    library: Callable[[], TensorValue],
    a: TensorValue,
    b: TensorValue,
    addend: Any = None,
    beta: Any = 1,
    alpha: Any = 1,
) -> TensorValue:
    """What the library gives, and beside its call the loops of alpha * (a @ b) + beta * addend."""
    second = low.node.args[PRODUCTS[prim_name(low.node)][1]]
    matrix, scales = unscaled(low, second, settled(b), 1)
    a, b = _factor(low, settled(a)), _factor(low, matrix)
    (*batches, rows, inner), columns, dtype = a.sizes, b.sizes[-1], low.spec.dtype

    def terms(index: list[Size], inside: list[Size]) -> Any:
        values = a.load([*index[:-1], *inside]), b.load([*index[:-2], *inside, index[-1]])
        return tuple(ops.to_dtype(v, torch.float32) for v in values)

    mark = len(low.nodes)
    total = low.new_buffer(BufferLayout.dense(torch.float32, low.spec.device, (*batches, rows, columns)))
    low.reduction_node(total, "dot", [inner], terms)
    product: TensorValue = low.whole(total)
    if scales:
        product = elementwise(low, [product, *scales], torch.float32, multiplied, len(scales))
    operands = [product, *([] if addend is None or beta == 0 else [addend])]
    value = elementwise(low, operands, dtype, lambda *v: ops.to_dtype(scaled(v, beta, alpha), dtype), len(operands))
    layout = BufferLayout(dtype, low.spec.device, product.sizes, tuple(low.spec.strides))
    result = low.new_buffer(layout)
    low.pointwise_node(result, value.load)
    loops = low.nodes[mark:]
    del low.nodes[mark:]
    # Only now are operands realised, which what is recorded from here on reads.
    value = library()
    call = low.nodes[-1]
    ours = isinstance(call, ExternNode) and isinstance(value, Strided) and call.outputs == (value.buffer,)
    if ours and low.buffers[value.buffer].layout == layout:
        low.products[call.name] = _in_place_of(call, loops, value.buffer)
    return value


def _in_place_of(call: ExternNode, loops: list[LoopNode], buffer: str) -> tuple[LoopNode, ...]:
    """The loops of a product, the second of which writes the buffer that the call does."""
    product, rest = loops
    body = rest.body
    instructions = tuple(i._replace(args=(buffer, *i.args[1:])) if i.op == "store" else i for i in body.instructions)
    rest = dataclasses.replace(rest, body=dataclasses.replace(body, instructions=instructions), writes=frozenset((buffer,)))
    names = f"{call.name}_product", f"{call.name}_result"
    return dataclasses.replace(product, name=names[0], core="tiles"), dataclasses.replace(rest, name=names[1])


def _factor(low: Any, value: TensorValue) -> TensorValue:
    """A matrix as the core reads it."""
    if not isinstance(value, Lazy):
        return value
    own = constant_product(value.sizes) * value.dtype.itemsize
    layouts = [low.buffers[name].layout for name in value.reads]
    moved = sum(constant_product(layout.sizes) * layout.dtype.itemsize for layout in layouts)
    most = MOST_COST_OF_FEWER_BYTES if moved < own else MOST_COST
    return value if value.cost <= most and moved <= MOST_BYTES * own else low.realize(value)


__all__ = ["tile_products", "with_tiles"]
