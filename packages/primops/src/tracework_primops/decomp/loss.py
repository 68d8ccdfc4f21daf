"""Losses and their backward forms. `reduction` is ATen's number: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

import math

import torch

from ..op import PrimValue, prims
from ..promotion import result_dtype
from ..symbols import Size
from .table import aten, decomposition, to, wide

NONE, MEAN, SUM = 0, 1, 2


def reduced(loss: PrimValue, reduction: int, dtype: torch.dtype) -> PrimValue:
    """The loss (wide) after its reduction, in dtype."""
    if reduction == NONE:
        return to(loss, dtype)
    total = prims.sum(loss, tuple(range(loss.ndim)), False, None) if loss.ndim else loss
    return to(prims.div(total, loss.numel()) if reduction == MEAN else total, dtype)


def _operands(*tensors: PrimValue) -> tuple[list[PrimValue], torch.dtype]:
    """Tensors in their common dtype, widened; and that dtype."""
    dtype = result_dtype(*tensors)
    return [wide(to(t, dtype)) for t in tensors], dtype


def _norm(x: PrimValue, reduction: int) -> Size:
    """What a mean divides by, 1 otherwise."""
    return x.numel() if reduction == MEAN else 1


def _divided(x: PrimValue, by: Size) -> PrimValue:
    return x if by.__class__ is int and by == 1 else prims.div(x, by)


@decomposition(aten.mse_loss)
def mse_loss(x: PrimValue, target: PrimValue, reduction: int = MEAN) -> PrimValue:
    (x, target), dtype = _operands(x, target)
    difference = prims.sub(x, target)
    return reduced(prims.mul(difference, difference), reduction, dtype)


@decomposition(aten.mse_loss_backward)
def mse_loss_backward(grad: PrimValue, x: PrimValue, target: PrimValue, reduction: int) -> PrimValue:
    (g, x, target), dtype = _operands(grad, x, target)
    difference = prims.sub(x, target)
    return to(_divided(prims.mul(prims.mul(difference, 2), g), _norm(difference, reduction)), dtype)


@decomposition(aten.l1_loss)
def l1_loss(x: PrimValue, target: PrimValue, reduction: int = MEAN) -> PrimValue:
    (x, target), dtype = _operands(x, target)
    return reduced(prims.abs(prims.sub(x, target)), reduction, dtype)


@decomposition(aten.smooth_l1_loss)
def smooth_l1_loss(x: PrimValue, target: PrimValue, reduction: int = MEAN, beta: float = 1.0) -> PrimValue:
    if beta == 0:
        return l1_loss(x, target, reduction)
    (x, target), dtype = _operands(x, target)
    z = prims.abs(prims.sub(x, target))
    near = prims.div(prims.mul(prims.mul(z, z), 0.5), beta)
    return reduced(prims.where(prims.lt(z, beta), near, prims.sub(z, 0.5 * beta)), reduction, dtype)


@decomposition(aten.smooth_l1_loss_backward)
def smooth_l1_loss_backward(grad: PrimValue, x: PrimValue, target: PrimValue, reduction: int, beta: float) -> PrimValue:
    (g, x, target), dtype = _operands(grad, x, target)
    d = prims.sub(x, target)
    g = _divided(g, _norm(d, reduction))
    near = prims.div(prims.mul(d, g), beta) if beta else prims.mul(d, 0)
    slope = prims.where(prims.ge(d, beta), g, near) if beta else prims.where(prims.gt(d, 0), g, near)
    below = prims.le(d, -beta) if beta else prims.lt(d, 0)
    return to(prims.where(below, prims.neg(g), slope), dtype)


@decomposition(aten.huber_loss)
def huber_loss(x: PrimValue, target: PrimValue, reduction: int = MEAN, delta: float = 1.0) -> PrimValue:
    dtype = x.dtype
    (x, target), _ = _operands(x, target)
    z = prims.abs(prims.sub(x, target))
    near = prims.mul(prims.mul(z, z), 0.5)
    far = prims.mul(prims.sub(z, 0.5 * delta), delta)
    return reduced(prims.where(prims.le(z, delta), near, far), reduction, dtype)


@decomposition(aten.huber_loss_backward)
def huber_loss_backward(grad: PrimValue, x: PrimValue, target: PrimValue, reduction: int, delta: float) -> PrimValue:
    (g, x, target), dtype = _operands(grad, x, target)
    d = prims.sub(x, target)
    g = _divided(g, _norm(d, reduction))
    slope = prims.where(prims.ge(d, delta), prims.mul(g, delta), prims.mul(d, g))
    return to(prims.where(prims.le(d, -delta), prims.mul(g, -delta), slope), dtype)


@decomposition(aten.soft_margin_loss)
def soft_margin_loss(x: PrimValue, target: PrimValue, reduction: int = MEAN) -> PrimValue:
    dtype = x.dtype
    (x, target), _ = _operands(x, target)
    z = prims.exp(prims.neg(prims.mul(target, x)))
    return reduced(prims.log1p(z), reduction, dtype)


@decomposition(aten.soft_margin_loss_backward)
def soft_margin_loss_backward(grad: PrimValue, x: PrimValue, target: PrimValue, reduction: int) -> PrimValue:
    (g, x, target), dtype = _operands(grad, x, target)
    z = prims.exp(prims.neg(prims.mul(target, x)))
    slope = prims.div(prims.mul(prims.neg(target), z), prims.add(z, 1))
    return to(_divided(prims.mul(slope, g), _norm(slope, reduction)), dtype)


def _refuse_outside(p: PrimValue, t: PrimValue) -> None:
    """Where one is not between 0 and 1, or NaN, that is an index out of range, into one number that nobody reads."""
    inside = prims.ge(p, 0.0)
    for other in (prims.le(p, 1.0), prims.ge(t, 0.0), prims.le(t, 1.0)):
        inside = prims.logical_and(inside, other)
    outside = prims.convert(prims.logical_not(inside), torch.int64)
    prims.index(prims.full((1,), 0, torch.int64, p.device), (outside,), False)


@decomposition(aten.binary_cross_entropy)
def binary_cross_entropy(x: PrimValue, target: PrimValue, weight: PrimValue | None = None, reduction: int = MEAN) -> PrimValue:
    (p, t), dtype = _operands(x, target)
    _refuse_outside(p, t)
    # eager keeps logarithms above -100
    log_p = prims.maximum(prims.log(p), -100.0)
    log_q = prims.maximum(prims.log1p(prims.neg(p)), -100.0)
    loss = prims.sub(prims.mul(prims.sub(t, 1), log_q), prims.mul(t, log_p))
    if weight is not None:
        loss = prims.mul(loss, to(weight, loss.dtype))
    return reduced(loss, reduction, dtype)


@decomposition(aten.binary_cross_entropy_backward)
def binary_cross_entropy_backward(
    grad: PrimValue, x: PrimValue, target: PrimValue, weight: PrimValue | None = None, reduction: int = MEAN
) -> PrimValue:
    (g, p, t), dtype = _operands(grad, x, target)
    denominator = prims.maximum(prims.mul(prims.sub(1, p), p), 1e-12)
    out = prims.div(prims.mul(g, prims.sub(p, t)), denominator)
    if weight is not None:
        out = prims.mul(out, to(weight, out.dtype))
    return to(_divided(out, _norm(p, reduction)), dtype)


@decomposition(aten.binary_cross_entropy_with_logits)
def binary_cross_entropy_with_logits(
    x: PrimValue, target: PrimValue, weight: PrimValue | None = None, pos_weight: PrimValue | None = None, reduction: int = MEAN
) -> PrimValue:
    if x.dtype is not target.dtype:
        return NotImplemented  # eager rounds what is in between, too, to the target's
    (y, t), dtype = _operands(x, target)
    soft = prims.add(prims.log1p(prims.exp(prims.neg(prims.abs(y)))), prims.maximum(prims.neg(y), 0))
    if pos_weight is not None:
        factor = prims.add(prims.mul(prims.sub(to(pos_weight, y.dtype), 1), t), 1)
        soft = prims.mul(factor, soft)
    loss = prims.add(prims.mul(prims.sub(1, t), y), soft)
    if weight is not None:
        loss = prims.mul(loss, to(weight, loss.dtype))
    return reduced(loss, reduction, dtype)


# --- negative log likelihood


def _class_dim(x: PrimValue) -> int:
    return 1 if x.ndim > 1 else 0


def _valid(target: PrimValue, ignore_index: Size) -> tuple[PrimValue, PrimValue]:
    """Which targets count, and targets that are safe to index with."""
    valid = prims.ne(target, ignore_index)
    return valid, prims.where(valid, target, 0)


def _class_weights(weight: PrimValue | None, target: PrimValue, dtype: torch.dtype) -> PrimValue | None:
    if weight is None:
        return None
    w = to(weight, dtype)
    if target.ndim == 0:
        return prims.reshape(prims.index_select(w, 0, prims.reshape(target, (1,))), ())
    return prims.index(w, (target,), False)


def _nll_forward(
    x: PrimValue, target: PrimValue, weight: PrimValue | None, reduction: int, ignore_index: Size
) -> tuple[PrimValue, PrimValue]:
    dim, y = _class_dim(x), wide(x)
    valid, safe = _valid(target, ignore_index)
    picked = prims.squeeze(prims.gather(y, dim, prims.unsqueeze(to(safe, torch.int64), dim)), (dim,))
    weights = _class_weights(weight, safe, y.dtype)
    loss = prims.neg(picked) if weights is None else prims.mul(prims.neg(picked), weights)
    loss = prims.where(valid, loss, 0.0)
    dims = tuple(range(loss.ndim))
    if reduction == NONE and x.ndim > 1:
        return to(loss, x.dtype), prims.full((), 0.0, x.dtype, x.device)
    counted = prims.convert(valid, y.dtype) if weights is None else prims.where(valid, weights, 0.0)
    total = prims.sum(counted, dims, False, None) if dims else counted
    loss = prims.sum(loss, dims, False, None) if dims else loss
    loss = prims.div(loss, total) if reduction == MEAN else loss
    return to(loss, x.dtype), to(total, x.dtype)


def _nll_backward(
    grad: PrimValue,
    x: PrimValue,
    target: PrimValue,
    weight: PrimValue | None,
    reduction: int,
    ignore_index: Size,
    total: PrimValue,
) -> PrimValue:
    """Dense: each element compares its class number with the target, which fuses with what follows."""
    dim, g = _class_dim(x), wide(grad)
    valid, safe = _valid(target, ignore_index)
    if reduction == MEAN:
        g = prims.div(g, to(total, g.dtype))
    value = prims.neg(g)
    weights = _class_weights(weight, safe, g.dtype)
    value = value if weights is None else prims.mul(value, weights)
    value = prims.where(valid, value, 0.0)
    classes = prims.iota(x.sizes[dim], 0, 1, torch.int64, x.device)
    if x.ndim > 1:
        classes = prims.reshape(classes, tuple(x.sizes[dim] if d == dim else 1 for d in range(x.ndim)))
    hit = prims.eq(classes, prims.unsqueeze(to(safe, torch.int64), dim))
    return to(prims.where(hit, prims.unsqueeze(value, dim), 0.0), x.dtype)


decomposition(aten.nll_loss_forward, aten.nll_loss2d_forward)(_nll_forward)
decomposition(aten.nll_loss_backward, aten.nll_loss2d_backward)(_nll_backward)


@decomposition(aten.kl_div)
def kl_div(x: PrimValue, target: PrimValue, reduction: int = MEAN, *, log_target: bool = False) -> PrimValue:
    (y, t), dtype = _operands(x, target)
    if log_target:
        loss = prims.mul(prims.exp(t), prims.sub(t, y))
    else:
        loss = prims.sub(prims.xlogy(t, t), prims.mul(t, y))
    return reduced(loss, reduction, dtype)


@decomposition(aten.poisson_nll_loss)
def poisson_nll_loss(x: PrimValue, target: PrimValue, log_input: bool, full: bool, eps: float, reduction: int) -> PrimValue:
    (y, t), dtype = _operands(x, target)
    if log_input:
        loss = prims.sub(prims.exp(y), prims.mul(t, y))
    else:
        loss = prims.sub(y, prims.mul(t, prims.log(prims.add(y, eps))))
    if full:
        stirling = prims.add(prims.sub(prims.mul(t, prims.log(t)), t), prims.mul(prims.log(prims.mul(t, 2 * math.pi)), 0.5))
        loss = prims.add(loss, prims.where(prims.le(t, 1), 0.0, stirling))
    return reduced(loss, reduction, dtype)
