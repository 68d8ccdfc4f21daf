"""Matrix products are prims; `linear` and vector forms reduce to them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..attention import operators
from ..op import PrimValue, Scalar, prims
from ..symbols import Size
from .reduction import linalg_vector_norm
from .table import aten, decomposition, promoted, to, wide


@decomposition(aten.mm)
def mm(a: PrimValue, b: PrimValue) -> PrimValue:
    return prims.mm(a, b)


@decomposition(aten.bmm)
def bmm(a: PrimValue, b: PrimValue) -> PrimValue:
    return prims.bmm(a, b)


@decomposition(aten.addmm)
def addmm(bias: PrimValue, a: PrimValue, b: PrimValue, *, beta: Scalar = 1, alpha: Scalar = 1) -> PrimValue:
    return prims.addmm(bias, a, b, beta, alpha)


@decomposition(aten.baddbmm)
def baddbmm(bias: PrimValue, a: PrimValue, b: PrimValue, *, beta: Scalar = 1, alpha: Scalar = 1) -> PrimValue:
    return prims.baddbmm(bias, a, b, beta, alpha)


@decomposition(aten.mv)
def mv(a: PrimValue, x: PrimValue) -> PrimValue:
    return prims.mv(a, x)


@decomposition(aten.addmv)
def addmv(bias: PrimValue, a: PrimValue, x: PrimValue, *, beta: Scalar = 1, alpha: Scalar = 1) -> PrimValue:
    if not bias.dtype.is_floating_point or bias.dtype is not a.dtype:
        return NotImplemented
    product = prims.mv(a, x)
    product = product if alpha == 1 else prims.mul(product, alpha)
    return product if beta == 0 else prims.add(bias if beta == 1 else prims.mul(bias, beta), product)


@decomposition(aten.dot)
def dot(a: PrimValue, b: PrimValue) -> PrimValue:
    return prims.dot(a, b)


@decomposition(aten.vdot)
def vdot(a: PrimValue, b: PrimValue) -> PrimValue:
    return prims.vdot(a, b)


@decomposition(aten._scaled_mm)
def scaled_mm(
    a: PrimValue,
    b: PrimValue,
    scale_a: PrimValue,
    scale_b: PrimValue,
    bias: PrimValue | None = None,
    scale_result: PrimValue | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> PrimValue:
    return prims.scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)


MOST_REFUSED_ROWS, INTEGER_UNIT = 16, 8
"""A GPU's library multiplies matrices of int8 with more rows, and inner dimensions and columns that are multiples of the unit."""


@decomposition(aten._int_mm)
def int_mm(a: PrimValue, b: PrimValue) -> PrimValue:
    """What the GPU's library refuses gets zeros, and the result is cut to size."""
    (rows, inner), columns = a.sizes, b.sizes[1]
    if a.device.type != "cuda":
        return prims.int_mm(a, b)
    below = MOST_REFUSED_ROWS
    if isinstance(rows, int):
        below = 0 if rows > MOST_REFUSED_ROWS else 2 * MOST_REFUSED_ROWS - rows
    right, behind = (-n % INTEGER_UNIT if isinstance(n, int) else 0 for n in (inner, columns))
    if below or right:
        a = prims.pad(a, ((0, below), (0, right)), 0)
    if right or behind:  # the library's quick kernels read the second matrix by columns
        b = prims.permute(prims.pad(prims.permute(b, (1, 0)), ((0, behind), (0, right)), 0), (1, 0))
    found = prims.int_mm(a, b)
    found = prims.slice(found, 0, 0, rows, 1) if below else found
    return prims.contiguous(prims.slice(found, 1, 0, columns, 1), (columns, 1)) if behind else found


@decomposition(aten.addr)
def addr(x: PrimValue, a: PrimValue, b: PrimValue, *, beta: Scalar = 1, alpha: Scalar = 1) -> PrimValue:
    if not x.dtype.is_floating_point or x.dtype is not a.dtype or a.dtype is not b.dtype:
        return NotImplemented
    outer = prims.mul(prims.unsqueeze(wide(a), 1), prims.unsqueeze(wide(b), 0))
    outer = outer if alpha == 1 else prims.mul(outer, alpha)
    y = wide(x)
    if beta == 0:
        return to(outer, x.dtype)
    return to(prims.add(y if beta == 1 else prims.mul(y, beta), outer), x.dtype)


@decomposition(aten.addbmm)
def addbmm(bias: PrimValue, a: PrimValue, b: PrimValue, *, beta: Scalar = 1, alpha: Scalar = 1) -> PrimValue:
    """The sum over the batch is a longer inner dim."""
    n, rows, inner = a.sizes
    if a.dtype not in (torch.float32, torch.float64):  # eager rounds after each of the products
        return NotImplemented
    left = prims.reshape(prims.permute(a, (1, 0, 2)), (rows, n * inner))
    right = prims.reshape(b, (n * inner, b.sizes[2]))
    return prims.addmm(bias, left, right, beta, alpha)


@decomposition(aten.dist)
def dist(x: PrimValue, y: PrimValue, p: float = 2) -> PrimValue:
    return linalg_vector_norm(prims.sub(*promoted(x, y)[0]), p)


@decomposition(operators().attention)
def attention(
    q: PrimValue,
    k: PrimValue,
    v: PrimValue,
    captured: Sequence[PrimValue],
    blocks: Sequence[PrimValue],
    sizes: Sequence[Size],
    score: str,
    keep: str,
    scale: float,
    extents: Sequence[int],
    zeroed: bool = True,
) -> tuple[PrimValue, PrimValue, PrimValue]:
    return prims.attention(q, k, v, captured, blocks, sizes, score, keep, scale, extents, zeroed)


@decomposition(operators().attention_backward)
def attention_backward(
    grad: PrimValue,
    q: PrimValue,
    k: PrimValue,
    v: PrimValue,
    logs: PrimValue,
    highest: PrimValue,
    delta: PrimValue,
    captured: Sequence[PrimValue],
    blocks: Sequence[PrimValue],
    sizes: Sequence[Size],
    score: str,
    slope: str,
    keep: str,
    scale: float,
    extents: Sequence[int],
) -> tuple[PrimValue, PrimValue, PrimValue]:
    return prims.attention_backward(
        grad, q, k, v, logs, highest, delta, captured, blocks, sizes, score, slope, keep, scale, extents
    )


@decomposition(operators().attention_sums)
def attention_sums(
    grad: PrimValue,
    q: PrimValue,
    k: PrimValue,
    v: PrimValue,
    logs: PrimValue,
    highest: PrimValue,
    delta: PrimValue,
    captured: Sequence[PrimValue],
    blocks: Sequence[PrimValue],
    sizes: Sequence[Size],
    score: str,
    factor: str,
    keep: str,
    scale: float,
    extents: Sequence[int],
    along: str,
) -> PrimValue:
    return prims.attention_sums(
        grad, q, k, v, logs, highest, delta, captured, blocks, sizes, score, factor, keep, scale, extents, along
    )
