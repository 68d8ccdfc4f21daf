"""Matrix products are prims; `linear` and vector forms reduce to them."""

from __future__ import annotations

from ..op import prims
from .table import aten, decomposition


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
    product = prims.mv(a, x)
    product = product if alpha == 1 else prims.mul(product, alpha)
    return product if beta == 0 else prims.add(bias if beta == 1 else prims.mul(bias, beta), product)


@decomposition(aten.dot)
def dot(a, b):
    return prims.dot(a, b)


@decomposition(aten.vdot)
def vdot(a, b):
    return prims.vdot(a, b)


@decomposition(aten.addr)
def addr(x, a, b, *, beta=1, alpha=1):
    outer = prims.mul(prims.unsqueeze(a, 1), prims.unsqueeze(b, 0))
    outer = outer if alpha == 1 else prims.mul(outer, alpha)
    return NotImplemented if x.dtype != outer.dtype else outer if beta == 0 else prims.add(
        x if beta == 1 else prims.mul(x, beta), outer
    )
