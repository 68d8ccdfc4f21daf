"""Large products and convolutions that the library computes, or a core of ours: loops beside the library's call, which say the same of values that are not in
memory yet. Which it is, is chosen after fusion (schedule/choice.py).

A core loads a matrix again for each tile of the other one's. So what it is computed from is computed again, too, and has to be little: casts,
scales, and what takes fewer bytes than the matrix, as quantised weights do.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

from ..autotune.book import Book
from ..ir.buffer import BufferLayout, ExternNode, LoopNode
from ..ir.index import Size, constant_product, same
from ..ir.scalar_ops import ops
from ..options import InductorOptions
from ..schedule.matrix_product import OPERANDS
from .pointwise import elementwise
from .row_padding import PRODUCTS, prim_name
from .value import Lazy, Strided, TensorValue, settled
from .vector_products import multiplied, scaled, unscaled

TILES = "tiles"
"""The core."""
MOST_COST = 8
"""Of an element that each tile computes again; of one whose loads take fewer bytes than it, MOST_COST_OF_FEWER_BYTES."""
MOST_COST_OF_FEWER_BYTES = 32
MOST_BYTES = 1.25
"""Loaded for a matrix, over its own: a scale of its rows is a little more."""


def tile_products(graph: Any, options: InductorOptions) -> frozenset[Any]:
    """Products and convolutions of a graph for which there are loops beside the library's call."""
    if options.products != "tiles" and not Book().answers(TILES):
        return frozenset()
    tests = {**dict.fromkeys(PRODUCTS, _is_large), "convolution": _is_dense_convolution}
    return frozenset(n for n in graph.nodes if (test := tests.get(prim_name(n) or "")) and _has_core(n) and test(n))


def _has_core(node: Any) -> bool:
    spec = node.meta.get("spec")
    return bool(spec.device.type == "cuda" and spec.dtype in OPERANDS)


def _is_large(node: Any) -> bool:
    a, b = (node.args[n].meta["spec"].sizes for n in PRODUCTS[prim_name(node)])  # type: ignore[index]
    return not any(isinstance(s, int) and s < 1 for s in (*a, *b)) and not any(same(s, 1) for s in (a[-2], a[-1], b[-1]))


def _is_dense_convolution(node: Any) -> bool:
    """Whether each channel of the result is computed from all of the image, of known sizes, and not transposed."""
    x, w = (n.meta["spec"].sizes for n in node.args[:2])
    *_, transposed, _, groups = node.args[3:9]
    known = all(isinstance(s, int) and s > 0 for s in (*x, *w, *node.meta["spec"].sizes))
    return known and not transposed and groups == 1 and w[0] > 1 and len(x) > 2


Terms = Callable[[list[Size], list[Size]], tuple[Any, Any]]
"""Of an index of the result and one of what is added up: the two factors."""


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
    second = low.node.args[PRODUCTS[prim_name(low.node)][1]]  # type: ignore[index]
    matrix, scales = unscaled(low, second, settled(b), 1)
    a, b = _factor(low, settled(a)), _factor(low, matrix)

    def terms(index: list[Size], inside: list[Size]) -> tuple[Any, Any]:
        return a.load([*index[:-1], *inside]), b.load([*index[:-2], *inside, index[-1]])

    def rest(product: TensorValue) -> TensorValue:
        if scales:
            product = elementwise(low, [product, *scales], torch.float32, multiplied, len(scales))
        operands = [product, *([] if addend is None or beta == 0 else [addend])]
        return elementwise(low, operands, low.spec.dtype, lambda *v: ops.to_dtype(scaled(v, beta, alpha), low.spec.dtype), 1)

    return _beside(low, library, (*a.sizes[:-1], b.sizes[-1]), (a.sizes[-1],), terms, rest)


def convolution_with_tiles(
    low: Any, library: Callable[[], TensorValue], x: TensorValue, w: TensorValue, settings: Any
) -> TensorValue:
    """What the library gives, and beside its call the loops of a convolution without a bias: a product over the window and the channels."""
    stride, padding, dilation = settings[:3]
    window, channels = tuple(w.sizes[2:]), x.sizes[1]
    x = _factor(low, settled(x)) if all(same(n, 1) for n in window) else low.realize(x)
    w = _factor(low, settled(w))

    def terms(index: list[Size], inside: list[Size]) -> tuple[Any, Any]:
        (image, channel, *place), (*tap, source) = index, inside
        at = [i * s + o * d - p for i, o, s, d, p in zip(place, tap, stride, dilation, padding, strict=True)]
        within = _within(x.sizes[2:], low.spec.sizes[2:], window, at, stride, dilation, padding)
        load = lambda: x.load([image, source, *at])
        return load() if within is None else ops.masked(within, load, 0.0), w.load([channel, source, *tap])

    def rest(product: TensorValue) -> TensorValue:
        return elementwise(low, [product], low.spec.dtype, lambda v: ops.to_dtype(v, low.spec.dtype), 0)

    return _beside(low, library, tuple(low.spec.sizes), (*window, channels), terms, rest)


def _within(sizes: Any, results: Any, window: Any, at: Any, stride: Any, dilation: Any, padding: Any) -> Any:
    """Whether a place lies in the image; None where it always does."""
    tests = []
    for size, count, taps, place, s, d, p in zip(sizes, results, window, at, stride, dilation, padding, strict=True):
        value = ops.index_expr(place, torch.int32)
        if p > 0:
            tests.append(ops.ge(value, ops.constant(0, torch.int32)))
        if (count - 1) * s + (taps - 1) * d - p >= size:
            tests.append(ops.lt(value, ops.constant(size, torch.int32)))
    return functools.reduce(ops.logical_and, tests) if tests else None


def _beside(
    low: Any,
    library: Callable[[], TensorValue],
    sizes: tuple[Size, ...],
    reduced: tuple[Size, ...],
    terms: Terms,
    rest: Callable[[TensorValue], TensorValue],
) -> TensorValue:
    """What the library gives, and beside its call the loops that add up terms and compute the rest from the sums."""
    mark = len(low.nodes)
    total = low.new_buffer(BufferLayout.dense(torch.float32, low.spec.device, sizes))
    low.reduction_node(
        total, "dot", reduced, lambda index, inside: tuple(ops.to_dtype(v, torch.float32) for v in terms(index, inside))
    )
    strides = low.row_padding.results.get(low.node, low.spec.strides)
    layout = BufferLayout(low.spec.dtype, low.spec.device, sizes, tuple(strides))
    low.pointwise_node(low.new_buffer(layout), rest(low.whole(total)).load)
    loops = low.nodes[mark:]
    del low.nodes[mark:]
    if any(
        True for loop in loops for _ in loop.body.checks()
    ):  # which are made by what reads the index beside the library's call
        return library()
    # Only now are operands realised, which what is recorded from here on reads.
    value = library()
    calls = [n for n, node in enumerate(low.nodes) if n >= mark and isinstance(node, ExternNode)]
    if not calls or not isinstance(value, Strided) or low.buffers[value.buffer].layout != layout:
        return value
    call, *others = low.nodes[calls[0] :]
    if value.buffer in others[-1].writes if others else call.outputs == (value.buffer,):
        low.products[call.name] = _in_place_of(call, loops, value.buffer)
        if others:
            low.pieces[call.name] = frozenset(node.name for node in others)
    return value


def _in_place_of(call: ExternNode, loops: list[LoopNode], buffer: str) -> tuple[LoopNode, ...]:
    """The loops of a product, the second of which writes the buffer that the call does."""
    product, rest = loops
    body = rest.body
    instructions = tuple(i._replace(args=(buffer, *i.args[1:])) if i.op == "store" else i for i in body.instructions)
    rest = dataclasses.replace(rest, body=dataclasses.replace(body, instructions=instructions), writes=frozenset((buffer,)))
    names = f"{call.name}_product", f"{call.name}_result"
    return dataclasses.replace(product, name=names[0], core=TILES), dataclasses.replace(rest, name=names[1])


def _factor(low: Any, value: TensorValue) -> TensorValue:
    """A matrix as the core reads it."""
    if not isinstance(value, Lazy):
        return value
    own = constant_product(value.sizes) * value.dtype.itemsize
    layouts = [low.buffers[name].layout for name in value.reads]
    moved = sum(constant_product(layout.sizes) * layout.dtype.itemsize for layout in layouts)
    most = MOST_COST_OF_FEWER_BYTES if moved < own else MOST_COST
    return value if value.cost <= most and moved <= MOST_BYTES * own else low.realize(value)


__all__ = ["convolution_with_tiles", "tile_products", "with_tiles"]
