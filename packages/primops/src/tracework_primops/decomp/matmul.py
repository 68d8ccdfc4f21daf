"""Matrix products are prims; `linear` and vector forms reduce to them."""

from __future__ import annotations

import torch

from ..attention import operators
from ..op import prims
from .reduction import linalg_vector_norm
from .table import aten, decomposition, promoted, to, wide


@decomposition(aten.mm)
def mm(a, b):
    return prims.mm(a, b)


@decomposition(aten.bmm)
def bmm(a, b):
    return prims.bmm(a, b)


@decomposition(aten.addmm)
def addmm(bias, a, b, *, beta=1, alpha=1):
    return prims.addmm(bias, a, b, beta, alpha)


@decomposition(aten.baddbmm)
def baddbmm(bias, a, b, *, beta=1, alpha=1):
    return prims.baddbmm(bias, a, b, beta, alpha)


@decomposition(aten.mv)
def mv(a, x):
    return prims.mv(a, x)


@decomposition(aten.addmv)
def addmv(bias, a, x, *, beta=1, alpha=1):
    if not bias.dtype.is_floating_point or bias.dtype is not a.dtype:
        return NotImplemented
    product = prims.mv(a, x)
    product = product if alpha == 1 else prims.mul(product, alpha)
    return product if beta == 0 else prims.add(bias if beta == 1 else prims.mul(bias, beta), product)


@decomposition(aten.dot)
def dot(a, b):
    return prims.dot(a, b)


@decomposition(aten.vdot)
def vdot(a, b):
    return prims.vdot(a, b)


@decomposition(aten._scaled_mm)
def scaled_mm(a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
    return prims.scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)


@decomposition(aten._int_mm)
def int_mm(a, b):
    return prims.int_mm(a, b)


@decomposition(aten.addr)
def addr(x, a, b, *, beta=1, alpha=1):
    if not x.dtype.is_floating_point or x.dtype is not a.dtype or a.dtype is not b.dtype:
        return NotImplemented
    outer = prims.mul(prims.unsqueeze(wide(a), 1), prims.unsqueeze(wide(b), 0))
    outer = outer if alpha == 1 else prims.mul(outer, alpha)
    y = wide(x)
    if beta == 0:
        return to(outer, x.dtype)
    return to(prims.add(y if beta == 1 else prims.mul(y, beta), outer), x.dtype)


@decomposition(aten.addbmm)
def addbmm(bias, a, b, *, beta=1, alpha=1):
    """The sum over the batch is a longer inner dim."""
    n, rows, inner = a.sizes
    if a.dtype not in (torch.float32, torch.float64):  # eager rounds after each of the products
        return NotImplemented
    left = prims.reshape(prims.permute(a, (1, 0, 2)), (rows, n * inner))
    right = prims.reshape(b, (n * inner, b.sizes[2]))
    return prims.addmm(bias, left, right, beta, alpha)


@decomposition(aten.dist)
def dist(x, y, p=2):
    return linalg_vector_norm(prims.sub(*promoted(x, y)[0]), p)


@decomposition(operators().attention)
def attention(q, k, v, captured, blocks, sizes, score, keep, scale, extents):
    return prims.attention(q, k, v, captured, blocks, sizes, score, keep, scale, extents)


@decomposition(operators().attention_backward)
def attention_backward(grad, q, k, v, lse, delta, captured, blocks, sizes, score, slope, keep, scale, extents):
    return prims.attention_backward(grad, q, k, v, lse, delta, captured, blocks, sizes, score, slope, keep, scale, extents)


@decomposition(operators().attention_sums)
def attention_sums(grad, q, k, v, lse, delta, captured, blocks, sizes, score, factor, keep, scale, extents, along):
    return prims.attention_sums(grad, q, k, v, lse, delta, captured, blocks, sizes, score, factor, keep, scale, extents, along)
