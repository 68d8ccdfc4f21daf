"""Large products and convolutions that the library computes, or a core of ours: loops beside the library's call, which say the same of
values that are not in memory yet. Which it is, is chosen after fusion (schedule/choice.py).

A core loads a matrix again for each tile of the other one's. So what it is computed from is computed again, too, and has to be little: casts,
scales, and what takes fewer bytes than the matrix, as quantised weights do.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..autotune.book import Book
from ..autotune.cost import PRODUCT_OF_ROWS, Device, device
from ..ir.buffer import BufferLayout, ExternNode, LoopNode
from ..ir.index import Size, constant_product, constant_size, same
from ..ir.scalar_ops import ops
from ..options import InductorOptions
from ..product_costs import ROW_BYTES, TILES, alignment, convolution_kind, has_few_channels, product_kind
from ..schedule.matrix_product import OPERANDS
from .layout import channels_last
from .pointwise import elementwise
from .row_padding import PRODUCTS, fast_axis, prim_name, readers, row_alignment
from .value import Lazy, Strided, TensorValue, pointwise, settled
from .vector_products import multiplied, scaled, unscaled

MOST_COST = 8
"""Of an element that each tile computes again; of one whose loads take fewer bytes than it, MOST_COST_OF_FEWER_BYTES."""
MOST_COST_OF_FEWER_BYTES = 32
MOST_BYTES = 1.25
"""Loaded for a matrix, over its own: a scale of its rows is a little more."""
FEW_BYTES = 8
"""Pixels of fewer than ROW_BYTES are filled up to so many, or to those."""


def tile_products(graph: Any, options: InductorOptions) -> frozenset[Any]:
    """Products and convolutions of a graph for which there are loops beside the library's call."""
    tests = {**dict.fromkeys(PRODUCTS, _is_large), "convolution": _is_dense_convolution}
    found = [n for n in graph.nodes if (test := tests.get(prim_name(n) or "")) and _has_core(n) and test(n)]
    if options.products == "tiles" or not found:
        return frozenset(found)
    book, read_by = Book(), readers(graph)
    return frozenset(n for n in found if _is_known(n, book, read_by[n]))


def _is_known(node: Any, book: Book, read_by: frozenset[str]) -> bool:
    """Whether what it takes can be looked up or predicted, so that planning both ways is worth its time."""
    on = device(node.meta["spec"].device.index or 0)
    if not on.calibrated and not book.knows(on.name):
        return False
    kind = _kind(node, on)
    if kind == PRODUCT_OF_ROWS and not _has_more(node, read_by):
        return book.answers(kind)
    return kind in on.calibrated or book.answers(kind)


def _has_more(node: Any, read_by: frozenset[str]) -> bool:
    """Whether loops follow a product, or the library has more to do than to multiply. Without either, it is the quicker one."""
    spec = node.meta["spec"]
    return "loop" in read_by or alignment(constant_size(spec.sizes[-1]), spec.dtype.itemsize) < ROW_BYTES


def _kind(node: Any, on: Device) -> str:
    """As decisions/products.py asks about it."""
    result = node.meta["spec"]
    unit = str(result.dtype).removeprefix("torch.")
    if (name := prim_name(node)) != "convolution":
        first, second = (node.args[n].meta["spec"] for n in PRODUCTS[name])
        sizes = (*first.sizes, *second.sizes)
        if first.ndim != 2 or not all(isinstance(s, int) for s in sizes):
            return TILES
        of_rows = all(_is_read_by(axis, spec) for axis, spec in ((1, first), (0, second)))
        return product_kind((1, first.sizes[0], second.sizes[1], first.sizes[1]), unit, of_rows)
    image, weight = (n.meta["spec"] for n in node.args[:2])
    return convolution_kind(image.sizes, weight.sizes, constant_product(result.sizes), unit, on)


def _is_read_by(axis: int, spec: Any) -> bool:
    """Whether a matrix's elements along the axis lie side by side, in rows that are loaded at once."""
    if fast_axis(spec.sizes, spec.strides) != axis:
        return False
    return row_alignment(spec.sizes, spec.strides, spec.offset, axis, spec.dtype.itemsize) >= ROW_BYTES


def _has_core(node: Any) -> bool:
    spec = node.meta.get("spec")
    return bool(spec.device.type == "cuda" and spec.dtype in OPERANDS)


def _is_large(node: Any) -> bool:
    a, b = (node.args[n].meta["spec"].sizes for n in PRODUCTS[prim_name(node)])
    return not any(isinstance(s, int) and s < 1 for s in (*a, *b)) and not any(same(s, 1) for s in (a[-2], a[-1], b[-1]))


def _is_dense_convolution(node: Any) -> bool:
    """Whether each channel of the result is computed from all of the image, of known sizes, and not transposed."""
    x, w = (n.meta["spec"].sizes for n in node.args[:2])
    *_, transposed, _, groups = node.args[3:9]
    known = all(isinstance(s, int) and s > 0 for s in (*x, *w, *node.meta["spec"].sizes))
    return known and not transposed and groups == 1 and w[0] > 1 and len(x) > 2


Terms = Callable[[list[Size], list[Size]], tuple[Any, Any]]
"""Of an index of the result and one of what is added up: the two factors."""
Product = Callable[[], tuple[tuple[Size, ...], Terms]]
"""Records what a product reads beside what is there already, if anything; the extents of what is added up, and the terms."""


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

    def terms(index: list[Size], inside: list[Size]) -> tuple[Any, Any]:
        return a.load([*index[:-1], *inside]), b.load([*index[:-2], *inside, index[-1]])

    def rest(product: TensorValue) -> TensorValue:
        if scales:
            product = elementwise(low, [product, *scales], torch.float32, multiplied, len(scales))
        operands = [product, *([] if addend is None or beta == 0 else [addend])]
        return elementwise(low, operands, low.spec.dtype, lambda *v: ops.to_dtype(scaled(v, beta, alpha), low.spec.dtype), 1)

    return _beside(low, library, (*a.sizes[:-1], b.sizes[-1]), lambda: ((a.sizes[-1],), terms), rest)


def convolution_with_tiles(
    low: Any, library: Callable[[], TensorValue], x: TensorValue, w: TensorValue, settings: Any
) -> TensorValue:
    """What the library gives, and beside its call the loops of a convolution without a bias: a product over the window and the channels."""
    stride, padding, dilation = settings[:3]
    window, channels = tuple(w.sizes[2:]), x.sizes[1]
    if has_few_channels([constant_size(n) for n in w.sizes], w.dtype.itemsize):
        return _of_few_channels(low, library, x, w, stride, padding, dilation)
    x = _factor(low, settled(x)) if all(same(n, 1) for n in window) else low.realize(x)
    w = _factor(low, settled(w))

    def terms(index: list[Size], inside: list[Size]) -> tuple[Any, Any]:
        (image, channel, *place), (*tap, source) = index, inside
        at = [i * s + o * d - p for i, o, s, d, p in zip(place, tap, stride, dilation, padding, strict=True)]
        within = _within(x.sizes[2:], low.spec.sizes[2:], window, at, stride, dilation, padding)
        load = lambda: x.load([image, source, *at])
        return load() if within is None else ops.masked(within, load, 0.0), w.load([channel, source, *tap])

    return _beside(low, library, tuple(low.spec.sizes), lambda: ((*window, channels), terms), functools.partial(_rounded, low))


def _of_few_channels(
    low: Any, library: Callable[[], TensorValue], x: TensorValue, w: TensorValue, stride: Any, padding: Any, dilation: Any
) -> TensorValue:
    """What the library gives, and beside its call a product whose elements along the sum lie side by side.

    Images and weights are copied first: with channels of zeros, so that a pixel is copied to shared memory at once, and images with their
    border, so that no place is tested. Where the window has no gaps, the pixels of one of its rows are one axis.
    """
    itemsize, channels = x.dtype.itemsize, low.spec.sizes[1]
    wide = (FEW_BYTES if constant_product(x.sizes[1:2]) * itemsize <= FEW_BYTES else ROW_BYTES) // itemsize
    window, results = tuple(w.sizes[2:]), tuple(low.spec.sizes[2:])
    border = tuple((n - 1) * s + (t - 1) * d + 1 for n, s, t, d in zip(results, stride, window, dilation, strict=True))

    def product_of_copies() -> tuple[tuple[Size, ...], Terms]:
        image = _with_zeros(low, x, border, padding, wide)
        weight = _with_zeros(low, w, window, (0,) * len(window), wide)
        (of_image, _, *places), (of_weight, _, *taps) = image.strides, weight.strides
        steps = [p * d for p, d in zip(places, dilation, strict=True)]
        inner = (*window, wide)
        if dilation[-1] == 1:
            inner, taps, steps = (*window[:-1], window[-1] * wide), taps[:-1], steps[:-1]
        rows = [p * s for p, s in zip(places, stride, strict=True)]
        image = image.window((image.sizes[0], *results, *inner), (of_image, *rows, *steps, 1), 0)
        weight = weight.window((channels, *inner), (of_weight, *taps, 1), 0)
        return inner, lambda index, inside: (image.load([index[0], *index[2:], *inside]), weight.load([index[1], *inside]))

    return _beside(low, library, tuple(low.spec.sizes), product_of_copies, functools.partial(_rounded, low))


def _with_zeros(low: Any, x: TensorValue, sizes: Sequence[Size], first: Sequence[int], channels: int) -> Strided:
    """A copy with channels last, of these sizes, in which x begins at `first`; zeros elsewhere, and what lies outside is left out."""
    padded = (x.sizes[0], channels, *sizes)

    def inner(index: list[Size]) -> Any:
        at = [index[0], index[1], *(i - p for i, p in zip(index[2:], first, strict=True))]
        tests = []
        for place, size, count, low_ in zip(at[1:], x.sizes[1:], padded[1:], (0, *first), strict=True):
            value = ops.index_expr(place, torch.int32)
            tests += [ops.ge(value, ops.constant(0, torch.int32))] if low_ > 0 else []
            tests += [ops.lt(value, ops.constant(size, torch.int32))] if constant_size(count) - low_ > constant_size(size) else []
        return ops.masked(functools.reduce(ops.logical_and, tests), lambda: x.load(at), 0.0) if tests else x.load(at)

    return low.realize(pointwise(padded, x.dtype, x.device, inner, [x], 4, channels_last(padded)))


def _rounded(low: Any, product: TensorValue) -> TensorValue:
    return elementwise(low, [product], low.spec.dtype, lambda v: ops.to_dtype(v, low.spec.dtype), 0)


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
    product: Product,
    rest: Callable[[TensorValue], TensorValue],
) -> TensorValue:
    """What the library gives, and beside its call the loops that add up terms and compute the rest from the sums."""
    mark = len(low.nodes)
    reduced, terms = product()
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
    """The loops of a product, the last of which writes the buffer that the call does."""
    *before, product, rest = loops
    body = rest.body
    instructions = tuple(i._replace(args=(buffer, *i.args[1:])) if i.op == "store" else i for i in body.instructions)
    rest = dataclasses.replace(rest, body=dataclasses.replace(body, instructions=instructions), writes=frozenset((buffer,)))
    names = f"{call.name}_product", f"{call.name}_result"
    copies = (dataclasses.replace(loops, name=f"{call.name}_copy{n}") for n, loops in enumerate(before))
    return *copies, dataclasses.replace(product, name=names[0], core=TILES), dataclasses.replace(rest, name=names[1])


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
