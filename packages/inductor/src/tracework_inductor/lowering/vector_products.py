"""Products of a few rows, as a decoder's step makes them: loops of ours that read the large matrix once, where it lies, as it is stored.

They are bound by the bytes of that matrix. A loop moves them as quickly as the library, casts and scales of a quantised matrix happen as it
is read, and what is added to the product, or computed from it, is fused. A scale of each row of the result's matrix is no term of the sums: the
product is scaled, which takes one multiplication an element of the result, not of the matrix, and rounds once.
"""

from collections.abc import Mapping
from typing import Any

import torch
from tracework_primops import Kind

from ..ir.buffer import BufferLayout
from ..ir.index import Size, constant_product, contiguous_strides
from ..ir.scalar_ops import ops
from .pointwise import elementwise
from .row_padding import PRODUCTS, prim_name
from .value import Lazy, TensorValue, pointwise, settled

MOST_ROWS: Mapping[str, Mapping[torch.dtype, int]] = {
    "cuda": {torch.bfloat16: 8, torch.float16: 8, torch.float32: 8},
    "cpu": {torch.bfloat16: 8, torch.float16: 8, torch.float32: 8},
}
"""Type of device -> dtype -> rows of the small matrix up to which a loop is no slower than the library.

On an H200, eight rows, microseconds of ours and the library's: bfloat16 2048x8192 12.1 and 14.3, 8192x2048 11.5 and 11.7, 768x3072 5.6 and
8.0; float32 4096x4096 32.2 and 48.4. On two cores of an EPYC 9004 that read 44 GB/s, GB/s of a matrix of 4096x4096, one, four and eight rows, and
of the library: rows of float32 37, 28, 22 (17, 8, 8), of bfloat16 42, 35, 25 (15, 18, 14), eight bits times a scale 32, 22, 19 (1, and 23, 15, 7
by its kernel for them); columns of float32 32 and 23 with one and eight rows (22, 7), of bfloat16 28 and 14 (12, 10).
"""
MOST_ROWS_OF_NARROW: Mapping[str, Mapping[torch.dtype, int]] = {"cuda": {torch.bfloat16: 64, torch.float16: 64}}
"""The same where the large matrix is computed element by element from at most NARROW of its bytes, as quantised ones are: the library reads a
copy that a kernel has written before, which takes five times the bytes of a matrix of eight bits. So many rows fill one block of columns."""
NARROW = 0.75
LEAST_ON_CPU = 1 << 14
"""Elements of the large matrix. With fewer the library's call takes microseconds, and a kernel of ours some tenths of a second to compile."""
OPERANDS: Mapping[str, tuple[int, int]] = {**PRODUCTS, "mv": (0, 1)}
"""prim -> positions of its two matrices, or of a matrix and a vector."""
CAST = 2
"""Cost of a small matrix's elements that each block of the loop may do again; a matrix that costs more is computed before."""
MOST_COST = 32
"""Of a large matrix's elements: more arithmetic takes longer than reading them."""


def vector_products(graph: Any, role: str) -> frozenset[Any]:
    """Products of an inference graph that are loops."""
    return frozenset(n for n in graph.nodes if _is_one(n)) if role == "inference" else frozenset()


def _is_one(node: Any) -> bool:
    name, spec = prim_name(node), node.meta.get("spec")
    if name not in OPERANDS or (most := MOST_ROWS.get(spec.device.type, {}).get(spec.dtype, 0)) == 0:
        return False
    a, b = (node.args[n].meta["spec"].sizes for n in OPERANDS[name])
    columns = 1 if name == "mv" else b[-1]
    if not all(isinstance(s, int) and s > 0 for s in (*a, columns)) or a[-1] == 1:
        return False
    if spec.device.type == "cpu" and max(a[-2], columns) * constant_product([*a[:-2], a[-1]]) < LEAST_ON_CPU:
        return False
    few, many = sorted((a[-2], columns))
    if most < few < many and len(a) == 2 and few <= MOST_ROWS_OF_NARROW.get(spec.device.type, {}).get(spec.dtype, 0):
        return _is_narrow(node.args[OPERANDS[name][int(a[-2] < columns)]])
    return few <= most < many


def _is_narrow(matrix: Any) -> bool:
    """Whether what a matrix is computed from, element by element, is at most NARROW of its bytes."""
    before, found = [matrix], dict[Any, int]()
    while before:
        node = before.pop()
        if node in found:
            continue
        found[node] = 0
        if getattr(node.target, "kind", None) in (Kind.POINTWISE, Kind.VIEW) or prim_name(node) == "cat":
            before += node.all_input_nodes
        elif "spec" in node.meta:
            found[node] = _bytes(node.meta["spec"])
    return sum(found.values()) <= NARROW * _bytes(matrix.meta["spec"])


def _bytes(spec: Any) -> int:
    return constant_product(spec.sizes) * int(spec.dtype.itemsize)


def vector_product(low: Any, a: Any, b: Any, addend: Any = None, beta: Any = 1, alpha: Any = 1) -> Any:
    """alpha * (a @ b) + beta * addend as values, computed in float32; of two matrices, or of as many pairs as there are batches."""
    (*batches, rows, inner), columns, dtype = a.sizes, b.sizes[-1], low.spec.dtype
    large = int(rows <= columns)
    matrix, scales = unscaled(low, low.node.args[OPERANDS[prim_name(low.node)][large]], settled((a, b)[large]), large)
    factors = (_small(low, settled(a), -1), _large(low, matrix))
    if not large:
        factors = (_large(low, matrix), _small(low, settled(b), -2))

    def terms(index: list[Size], inside: list[Size]) -> Any:
        values = factors[0].load([*index[:-1], *inside]), factors[1].load([*index[:-2], *inside, index[-1]])
        return tuple(ops.to_dtype(v, torch.float32) for v in values)

    buffer = low.new_buffer(BufferLayout.dense(torch.float32, low.spec.device, (*batches, rows, columns)))
    low.reduction_node(buffer, "dot", [inner], terms)
    total = low.whole(buffer)
    if scales:  # where the product is, whoever reads it
        total = low.realize(elementwise(low, [total, *scales], torch.float32, multiplied, len(scales)))
    operands = [total, *([] if addend is None or beta == 0 else [addend])]
    return elementwise(low, operands, dtype, lambda *v: ops.to_dtype(scaled(v, beta, alpha), dtype), len(operands))


def multiplied(*values: Any) -> Any:
    """A product in float32, and what scales it."""
    product = values[0]
    for value in values[1:]:
        product = ops.mul(product, ops.to_dtype(value, torch.float32))
    return product


def unscaled(low: Any, node: Any, value: TensorValue, outer: int) -> tuple[TensorValue, list[Any]]:
    """A matrix before it was multiplied with what is the same along its inner dimension, and these factors, as the result takes them.

    outer: the other dimension of the matrix. Matrices of batches are left as they are.
    """
    turned, scales = False, []
    while value.ndim == 2:
        base = _turned(node)
        if base is not None:
            node, turned = base, not turned
        elif (found := _scale(node, 1 - outer if turned else outer)) is not None:
            node, scale = found
            scales.append(
                scale if _is_number(scale) else _along(settled(low.values[scale]), 1 - outer if turned else outer, outer)
            )
        else:
            break
    if not scales:
        return value, []
    matrix = settled(low.values[node])
    if turned:
        read = matrix
        matrix = pointwise(value.sizes, read.dtype, read.device, lambda index: read.load([index[1], index[0]]), (read,), 0)
    return matrix, scales


def _turned(node: Any) -> Any:
    return node.args[0] if prim_name(node) == "permute" and tuple(node.args[1]) == (1, 0) else None


def _scale(node: Any, outer: int) -> tuple[Any, Any] | None:
    """(matrix, scale) of their product, a matrix, if the scale changes along the outer dimension alone."""
    if prim_name(node) != "mul":
        return None
    for matrix, scale in (node.args, node.args[::-1]):
        if _is_number(scale):
            return matrix, scale
        specs: list[Any] = [getattr(n, "meta", {}).get("spec") for n in (matrix, scale)]
        if None in specs or specs[0].sizes != node.meta["spec"].sizes or not specs[0].dtype.is_floating_point:
            continue
        sizes = (*[1] * (2 - len(specs[1].sizes)), *specs[1].sizes)
        if sizes[1 - outer] == 1:
            return matrix, scale
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _along(scale: TensorValue, axis: int, outer: int) -> TensorValue:
    """A factor of a matrix's dimension `axis` as one of the result's dimension `outer`."""
    size = scale.sizes[axis - 2] if scale.ndim >= 2 - axis else 1

    def read(index: list[Size]) -> Any:
        place: list[Size] = [0, 0]
        place[axis] = index[outer] if size != 1 else 0
        return scale.load(place[2 - scale.ndim :])

    sizes: list[Size] = [1, 1]
    sizes[outer] = size
    return pointwise(sizes, scale.dtype, scale.device, read, (scale,), 0)


def scaled(values: tuple[Any, ...], beta: Any, alpha: Any) -> Any:
    """alpha times the first value, plus beta times each other one, in float32."""

    def times(value: Any, factor: Any) -> Any:
        return value if factor == 1 else ops.mul(value, ops.constant(factor, torch.float32))

    total = times(values[0], alpha)
    for addend in values[1:]:
        total = ops.add(total, times(ops.to_dtype(addend, torch.float32), beta))
    return total


def _large(low: Any, value: TensorValue) -> TensorValue:
    """The large matrix as it is stored, unless reading what it is computed from takes longer."""
    if not isinstance(value, Lazy):
        return value
    layouts = [low.buffers[name].layout for name in value.reads]
    moved = sum(constant_product(layout.sizes) * layout.dtype.itemsize for layout in layouts)
    as_stored = value.cost <= MOST_COST and moved <= constant_product(value.sizes) * value.dtype.itemsize
    return value if as_stored else low.realize(value)


def _small(low: Any, value: TensorValue, inner: int) -> TensorValue:
    """The small matrix; a CPU's kernel reads vectors along its inner dimension, for some columns of the result at a time."""
    if value.device.type != "cpu":
        return low.realize(value) if isinstance(value, Lazy) and value.cost > CAST else value
    at = low.place(value)
    if at is not None and at.strides[inner] == 1:
        return at
    order = contiguous_strides(value.sizes)
    if inner == -2:
        *outer, depth, columns = value.sizes
        order = (*contiguous_strides((*outer, columns, depth))[:-2], 1, depth)
    return low.realize_with(value, order)


__all__ = ["multiplied", "scaled", "unscaled", "vector_product", "vector_products"]
