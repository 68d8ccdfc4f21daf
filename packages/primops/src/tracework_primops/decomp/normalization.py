"""Softmax; layer, group, batch and RMS norm; their backward forms.

All compute in float32 for half precisions. Statistics are returned in the dtype eager saves them in, which differs between
CPU (the parameters' dtype when inputs are mixed, else the input's) and other devices (float32).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import PrimValue, prims
from ..promotion import compute_dtype
from ..symbols import Size
from .reduction import count_of
from .table import aten, decomposition, dim_of, to, wide
from .view import expected

# --- softmax


def _is_empty(x: PrimValue, dim: int) -> bool:
    return bool(x.ndim) and x.sizes[dim].__class__ is int and x.sizes[dim] == 0


def _along(x: PrimValue, dim: int, rule: Callable[[PrimValue, tuple[int, ...]], PrimValue]) -> PrimValue:
    """rule(x, (dim,)) with 0-dim tensors taken as one element."""
    dim = dim_of(x, dim)
    if x.ndim:
        return rule(x, (dim,))
    return prims.reshape(rule(prims.reshape(x, (1,)), (0,)), ())


def _exponentials(y: PrimValue, dims: tuple[int, ...]) -> tuple[PrimValue, PrimValue, PrimValue]:
    """x - max, its exp, and the sum of these."""
    shifted = prims.sub(y, prims.amax(y, dims, True))
    e = prims.exp(shifted)
    return shifted, e, prims.sum(e, dims, True, None)


def _softmax_rule(y: PrimValue, dims: tuple[int, ...]) -> PrimValue:
    if _is_empty(y, dims[0]):
        return prims.clone(y)
    _, e, total = _exponentials(y, dims)
    return prims.div(e, total)


def _log_softmax_rule(y: PrimValue, dims: tuple[int, ...]) -> PrimValue:
    if _is_empty(y, dims[0]):
        return prims.clone(y)
    shifted, _, total = _exponentials(y, dims)
    return prims.sub(shifted, prims.log(total))


@decomposition(aten._softmax)
def softmax(x: PrimValue, dim: int, half_to_float: bool) -> PrimValue:
    out = torch.float32 if half_to_float else x.dtype
    return to(_along(wide(x), dim, _softmax_rule), out)


@decomposition(aten._log_softmax)
def log_softmax(x: PrimValue, dim: int, half_to_float: bool) -> PrimValue:
    out = torch.float32 if half_to_float else x.dtype
    return to(_along(wide(x), dim, _log_softmax_rule), out)


@decomposition(aten._safe_softmax)
def safe_softmax(x: PrimValue, dim: int, dtype: torch.dtype | None = None) -> PrimValue:
    """Rows that are -inf throughout give 0."""
    y = to(x, dtype) if dtype is not None else x

    def rule(v: PrimValue, dims: tuple[int, ...]) -> PrimValue:
        if _is_empty(v, dims[0]):
            return prims.clone(v)
        return prims.where(prims.all(prims.eq(v, -math.inf), dims, True), 0.0, _softmax_rule(v, dims))

    return to(_along(wide(y), dim, rule), y.dtype)


@decomposition(aten._softmax_backward_data)
def softmax_backward(grad: PrimValue, output: PrimValue, dim: int, input_dtype: torch.dtype) -> PrimValue:
    g, y = wide(grad), wide(output)
    dims = (dim_of(grad, dim),) if grad.ndim else ()
    product = prims.mul(g, y)
    total = prims.sum(product, dims, True, None) if dims else product
    return to(prims.sub(product, prims.mul(y, total)), input_dtype)


@decomposition(aten._log_softmax_backward_data)
def log_softmax_backward(grad: PrimValue, output: PrimValue, dim: int, input_dtype: torch.dtype) -> PrimValue:
    g, y = wide(grad), wide(output)
    dims = (dim_of(grad, dim),) if grad.ndim else ()
    total = prims.sum(g, dims, True, None) if dims else g
    return to(prims.sub(g, prims.mul(prims.exp(y), total)), input_dtype)


# --- what the norms share


def _saved_dtype(x: PrimValue, *parameters: PrimValue | None) -> torch.dtype:
    """The dtype of saved statistics: what the op's fake has, else eager's rule."""
    wanted = expected()
    if isinstance(wanted, tuple) and len(wanted) > 1 and wanted[1] is not None:
        return wanted[1].dtype
    if x.device.type != "cpu":
        return compute_dtype(x.dtype)
    return next((p.dtype for p in parameters if p is not None), x.dtype)


def _mean_over(x: PrimValue, dims: tuple[int, ...]) -> PrimValue:
    return prims.div(prims.sum(x, dims, True, None), count_of(x, dims))


def _centred_gradient(g: PrimValue, normal: PrimValue, rstd: PrimValue, dims: tuple[int, ...]) -> PrimValue:
    """Gradient through (x - mean) * rstd; g is the gradient of `normal`."""
    along = prims.mul(normal, _mean_over(prims.mul(g, normal), dims))
    return prims.mul(prims.sub(prims.sub(g, _mean_over(g, dims)), along), rstd)


def _scaled(y: PrimValue, weight: PrimValue | None, bias: PrimValue | None) -> PrimValue:
    y = y if weight is None else prims.mul(y, to(weight, y.dtype))
    return y if bias is None else prims.add(y, to(bias, y.dtype))


def _total(x: PrimValue, dims: tuple[int, ...], dtype: torch.dtype, sizes: Sequence[Size] | None = None) -> PrimValue:
    y = prims.sum(x, dims, False, None) if dims else x
    return to(y if sizes is None else prims.reshape(y, tuple(sizes)), dtype)


# --- layer norm and RMS norm


@decomposition(aten.native_layer_norm)
def layer_norm(
    x: PrimValue, normalized_shape: Sequence[Size], weight: PrimValue | None, bias: PrimValue | None, eps: float
) -> tuple[PrimValue, PrimValue, PrimValue]:
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    y = wide(x)
    variance, mean = prims.var_mean(y, dims, 0, True)
    rstd = prims.rsqrt(prims.add(variance, eps))
    out = _scaled(prims.mul(prims.sub(y, mean), rstd), weight, bias)
    saved = _saved_dtype(x, weight, bias)
    return to(out, x.dtype), to(mean, saved), to(rstd, saved)


@decomposition(aten.native_layer_norm_backward)
def layer_norm_backward(
    grad: PrimValue,
    x: PrimValue,
    normalized_shape: Sequence[Size],
    mean: PrimValue,
    rstd: PrimValue,
    weight: PrimValue | None,
    bias: PrimValue | None,
    mask: Sequence[bool],
) -> tuple[PrimValue | None, ...]:
    axis = x.ndim - len(normalized_shape)
    inner, outer = tuple(range(axis, x.ndim)), tuple(range(axis))
    g, y = wide(grad), wide(x)
    m, r = to(mean, y.dtype), to(rstd, y.dtype)
    normal = prims.mul(prims.sub(y, m), r)
    by_x = by_weight = by_bias = None
    if mask[0]:
        by_x = to(_centred_gradient(_scaled(g, weight, None), normal, r, inner), x.dtype)
    if mask[1] and weight is not None:
        by_weight = _total(prims.mul(g, normal), outer, weight.dtype)
    like = bias if bias is not None else weight
    if mask[2] and like is not None:
        by_bias = _total(g, outer, like.dtype)
    return by_x, by_weight, by_bias


def _rms_epsilon(x: PrimValue, eps: float | None) -> float:
    return torch.finfo(compute_dtype(x.dtype)).eps if eps is None else eps


@decomposition(aten._fused_rms_norm)
def rms_norm(
    x: PrimValue, normalized_shape: Sequence[int], weight: PrimValue | None, eps: float | None
) -> tuple[PrimValue, PrimValue]:
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    y = wide(x)
    rstd = prims.rsqrt(prims.add(_mean_over(prims.mul(y, y), dims), _rms_epsilon(x, eps)))
    out = _scaled(prims.mul(y, rstd), weight, None)
    return to(out, x.dtype), to(rstd, _saved_dtype(x))


@decomposition(aten._fused_rms_norm_backward)
def rms_norm_backward(
    grad: PrimValue,
    x: PrimValue,
    normalized_shape: Sequence[int],
    rstd: PrimValue,
    weight: PrimValue | None,
    mask: Sequence[bool],
) -> tuple[PrimValue | None, ...]:
    axis = x.ndim - len(normalized_shape)
    inner, outer = tuple(range(axis, x.ndim)), tuple(range(axis))
    g, y = wide(grad), wide(x)
    r = to(rstd, y.dtype)
    normal = prims.mul(y, r)
    by_x = by_weight = None
    if mask[0]:
        scaled = _scaled(g, weight, None)
        along = prims.mul(normal, _mean_over(prims.mul(scaled, normal), inner))
        by_x = to(prims.mul(prims.sub(scaled, along), r), x.dtype)
    if mask[1] and weight is not None:
        by_weight = _total(prims.mul(g, normal), outer, weight.dtype)
    return by_x, by_weight


# --- group norm


def _grouped(x: PrimValue, n: Size, c: Size, inner: Size, group: int) -> PrimValue:
    return prims.reshape(x, (n, group, c // group, inner))


def _per_group(weight: PrimValue | None, c: Size, group: int, dtype: torch.dtype) -> PrimValue | None:
    return None if weight is None else to(prims.reshape(weight, (1, group, c // group, 1)), dtype)


@decomposition(aten.native_group_norm)
def group_norm(
    x: PrimValue, weight: PrimValue | None, bias: PrimValue | None, n: Size, c: Size, inner: Size, group: int, eps: float
) -> tuple[PrimValue, PrimValue, PrimValue]:
    y = wide(_grouped(x, n, c, inner, group))
    variance, mean = prims.var_mean(y, (2, 3), 0, True)
    rstd = prims.rsqrt(prims.add(variance, eps))
    normal = prims.mul(prims.sub(y, mean), rstd)
    out = _scaled(normal, _per_group(weight, c, group, y.dtype), _per_group(bias, c, group, y.dtype))
    saved = weight.dtype if weight is not None else x.dtype
    flat = (n, group)
    return (
        prims.reshape(to(out, x.dtype), x.sizes),
        to(prims.reshape(mean, flat), saved),
        to(prims.reshape(rstd, flat), saved),
    )


@decomposition(aten.native_group_norm_backward)
def group_norm_backward(
    grad: PrimValue,
    x: PrimValue,
    mean: PrimValue,
    rstd: PrimValue,
    weight: PrimValue | None,
    n: Size,
    c: Size,
    inner: Size,
    group: int,
    mask: Sequence[bool],
) -> tuple[PrimValue | None, ...]:
    g, y = wide(_grouped(grad, n, c, inner, group)), wide(_grouped(x, n, c, inner, group))
    m, r = (to(prims.reshape(v, (n, group, 1, 1)), y.dtype) for v in (mean, rstd))
    normal = prims.mul(prims.sub(y, m), r)
    # Sums of each channel of each image serve all three: the large tensors are read once for them.
    along, total = prims.sum(prims.mul(g, normal), (3,), True, None), prims.sum(g, (3,), True, None)
    w = _per_group(weight, c, group, y.dtype)
    dtype = weight.dtype if weight is not None else mean.dtype
    by_x = by_weight = by_bias = None
    if mask[0]:
        count = count_of(y, (2, 3))
        shift, slope = (prims.div(prims.sum(_scaled(v, w, None), (2,), True, None), count) for v in (total, along))
        centred = prims.sub(prims.sub(_scaled(g, w, None), shift), prims.mul(normal, slope))
        by_x = prims.reshape(to(prims.mul(centred, r), x.dtype), x.sizes)
    if mask[1]:
        by_weight = _total(along, (0, 3), dtype, (c,))
    if mask[2]:
        by_bias = _total(total, (0, 3), dtype, (c,))
    return by_x, by_weight, by_bias


# --- batch norm


def _channel(v: PrimValue, ndim: int, dtype: torch.dtype) -> PrimValue:
    """A per-channel vector shaped to broadcast against (N, C, ...)."""
    v = to(v, dtype)
    return v if ndim <= 1 else prims.reshape(v, (1, v.sizes[0], *[1] * (ndim - 2)))


def _other_dims(x: PrimValue) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _apply(x: PrimValue, mean: PrimValue, rstd: PrimValue, weight: PrimValue | None, bias: PrimValue | None) -> PrimValue:
    """(x - mean) * (rstd * weight) + bias; mean and rstd are vectors."""
    y = wide(x)
    scale = to(rstd, y.dtype) if weight is None else prims.mul(to(rstd, y.dtype), to(weight, y.dtype))
    out = prims.mul(prims.sub(y, _channel(mean, x.ndim, y.dtype)), _channel(scale, x.ndim, y.dtype))
    return to(out if bias is None else prims.add(out, _channel(bias, x.ndim, y.dtype)), x.dtype)


def _with_batch_statistics(
    x: PrimValue, weight: PrimValue | None, bias: PrimValue | None, eps: float
) -> tuple[PrimValue, PrimValue, PrimValue, PrimValue]:
    """Result, mean, reciprocal deviation and variance of the batch (the last three wide)."""
    variance, mean = prims.var_mean(wide(x), _other_dims(x), 0, False)
    rstd = prims.rsqrt(prims.add(variance, eps))
    return _apply(x, mean, rstd, weight, bias), mean, rstd, variance


def _moved(running: PrimValue, value: PrimValue, momentum: float) -> PrimValue:
    """The running statistic after one step."""
    r = to(running, value.dtype)
    return to(prims.add(prims.mul(value, momentum), prims.mul(r, 1 - momentum)), running.dtype)


def _unbiased(variance: PrimValue, x: PrimValue) -> PrimValue:
    n = count_of(x, _other_dims(x))
    if n.__class__ is int:
        return prims.mul(variance, n / (n - 1) if n > 1 else math.nan)
    return prims.div(prims.mul(variance, n), n - 1)


def _without_batch_statistics(
    x: PrimValue, weight: PrimValue | None, bias: PrimValue | None, mean: Any, variance: Any, eps: float
) -> tuple[PrimValue, PrimValue, PrimValue]:
    """Result with running statistics, which eager demands here, and two empty saved tensors."""
    dtype = compute_dtype(x.dtype)
    rstd = prims.rsqrt(prims.add(to(variance, dtype), eps))
    saved = _saved_dtype(x, weight, bias)
    out = _apply(x, mean, rstd, weight, bias)
    if x.device.type != "cpu":
        return out, to(prims.clone(mean), saved), to(rstd, saved)
    return (out, *(prims.empty((0,), saved, x.device) for _ in range(2)))


def _trained(
    x: PrimValue, weight: PrimValue | None, bias: PrimValue | None, eps: float
) -> tuple[PrimValue, PrimValue, PrimValue]:
    out, mean, rstd, _ = _with_batch_statistics(x, weight, bias, eps)
    saved = _saved_dtype(x, weight, bias)
    return out, to(mean, saved), to(rstd, saved)


@decomposition(aten.native_batch_norm)
def native_batch_norm(
    x: PrimValue,
    weight: PrimValue | None,
    bias: PrimValue | None,
    mean: PrimValue | None,
    variance: PrimValue | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[PrimValue, PrimValue, PrimValue]:
    if not training:
        return _without_batch_statistics(x, weight, bias, mean, variance, eps)
    # with running statistics the kernel writes them in place, which only the kernel itself can do here
    return _trained(x, weight, bias, eps) if mean is None and variance is None else NotImplemented


@decomposition(aten._native_batch_norm_legit.no_stats)
def batch_norm_without_running(
    x: PrimValue, weight: PrimValue | None, bias: PrimValue | None, training: bool, momentum: float, eps: float
) -> tuple[PrimValue, PrimValue, PrimValue]:
    return _trained(x, weight, bias, eps)


@decomposition(aten._native_batch_norm_legit_no_training)
def batch_norm_inference(
    x: PrimValue,
    weight: PrimValue | None,
    bias: PrimValue | None,
    mean: PrimValue,
    variance: PrimValue,
    momentum: float,
    eps: float,
) -> tuple[PrimValue, PrimValue, PrimValue]:
    return _without_batch_statistics(x, weight, bias, mean, variance, eps)


@decomposition(aten._native_batch_norm_legit_functional)
def batch_norm_functional(
    x: PrimValue,
    weight: PrimValue | None,
    bias: PrimValue | None,
    mean: PrimValue,
    variance: PrimValue,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[PrimValue, PrimValue, PrimValue, PrimValue, PrimValue]:
    if not training:
        return (*_without_batch_statistics(x, weight, bias, mean, variance, eps), mean, variance)
    out, batch_mean, rstd, batch_variance = _with_batch_statistics(x, weight, bias, eps)
    saved = _saved_dtype(x, weight, bias)
    new_mean = _moved(mean, batch_mean, momentum)
    new_variance = _moved(variance, _unbiased(batch_variance, x), momentum)
    return out, to(batch_mean, saved), to(rstd, saved), new_mean, new_variance


def _reserve(x: PrimValue) -> PrimValue:
    return prims.empty((0,), torch.uint8, x.device)


def _wants_cudnn_reserve() -> bool:
    """cuDNN keeps data of its own between forward and backward; then only its kernels can be used."""
    wanted = expected()
    return isinstance(wanted, tuple) and len(wanted) > 3 and wanted[3].sizes != (0,)


@decomposition(aten._batch_norm_with_update_functional)
def batch_norm_with_update(
    x: PrimValue,
    weight: PrimValue | None,
    bias: PrimValue | None,
    mean: PrimValue,
    variance: PrimValue,
    momentum: float,
    eps: float,
) -> tuple[PrimValue, PrimValue, PrimValue, PrimValue, PrimValue, PrimValue]:
    if _wants_cudnn_reserve():
        return NotImplemented
    out, save_mean, save_rstd, new_mean, new_variance = batch_norm_functional(
        x, weight, bias, mean, variance, True, momentum, eps
    )
    return out, save_mean, save_rstd, _reserve(x), new_mean, new_variance


@decomposition(aten._batch_norm_no_update)
def batch_norm_no_update(
    x: PrimValue,
    weight: PrimValue | None,
    bias: PrimValue | None,
    mean: PrimValue | None,
    variance: PrimValue | None,
    momentum: float,
    eps: float,
) -> tuple[PrimValue, PrimValue, PrimValue, PrimValue]:
    return (
        NotImplemented
        if _wants_cudnn_reserve()
        else (*_without_batch_statistics(x, weight, bias, mean, variance, eps), _reserve(x))
    )


@decomposition(aten.cudnn_batch_norm)
def cudnn_batch_norm(
    x: PrimValue,
    weight: PrimValue,
    bias: PrimValue | None,
    mean: PrimValue | None,
    variance: PrimValue | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[PrimValue, PrimValue, PrimValue, PrimValue]:
    if training or _wants_cudnn_reserve():
        return NotImplemented
    return (*_without_batch_statistics(x, weight, bias, mean, variance, eps), _reserve(x))


@decomposition(aten.miopen_batch_norm)
def miopen_batch_norm(
    x: PrimValue,
    weight: PrimValue,
    bias: PrimValue | None,
    mean: PrimValue | None,
    variance: PrimValue | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[PrimValue, PrimValue, PrimValue]:
    return NotImplemented if training else _without_batch_statistics(x, weight, bias, mean, variance, eps)


@decomposition(aten.native_batch_norm_backward)
def native_batch_norm_backward(
    grad: PrimValue,
    x: PrimValue,
    weight: PrimValue | None,
    mean: PrimValue | None,
    variance: PrimValue | None,
    save_mean: PrimValue | None,
    save_rstd: PrimValue | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[PrimValue | None, ...]:
    g, y = wide(grad), wide(x)
    dtype = y.dtype
    if train:
        m, r = to(save_mean, dtype), to(save_rstd, dtype)
    else:
        m, r = to(mean, dtype), prims.rsqrt(prims.add(to(variance, dtype), eps))
    dims, n = _other_dims(x), count_of(x, _other_dims(x))
    centred = prims.sub(y, _channel(m, x.ndim, dtype))
    by_x = by_weight = by_bias = None
    needs_sums = train or mask[1] or mask[2]
    total = prims.sum(g, dims, False, None) if needs_sums else None
    dot = prims.sum(prims.mul(g, centred), dims, False, None) if needs_sums else None
    if mask[0]:
        scale = r if weight is None else prims.mul(r, to(weight, dtype))
        if train:
            projection = prims.mul(prims.mul(prims.div(dot, n), r), r)
            g = prims.sub(prims.sub(g, _channel(prims.div(total, n), x.ndim, dtype)),
                          prims.mul(centred, _channel(projection, x.ndim, dtype)))  # fmt: skip
        by_x = to(prims.mul(g, _channel(scale, x.ndim, dtype)), x.dtype)
    out = weight.dtype if weight is not None else _saved_dtype(x)
    if mask[1]:
        by_weight = to(prims.mul(dot, r), out)
    if mask[2]:
        by_bias = to(total, out)
    return by_x, by_weight, by_bias


@decomposition(aten.batch_norm_backward)
def batch_norm_backward(
    grad: PrimValue,
    x: PrimValue,
    weight: PrimValue,
    mean: PrimValue | None,
    variance: PrimValue | None,
    save_mean: PrimValue | None,
    save_rstd: PrimValue | None,
    update: bool,
    eps: float,
    mask: Sequence[bool],
    reserve: PrimValue,
) -> tuple[PrimValue | None, ...]:
    if reserve.sizes != (0,):
        return NotImplemented
    return native_batch_norm_backward(grad, x, weight, mean, variance, save_mean, save_rstd, update, eps, mask)


@decomposition(aten.cudnn_batch_norm_backward)
def cudnn_batch_norm_backward(
    x: PrimValue,
    grad: PrimValue,
    weight: PrimValue,
    mean: PrimValue | None,
    variance: PrimValue | None,
    save_mean: PrimValue | None,
    save_rstd: PrimValue | None,
    eps: float,
    reserve: PrimValue,
) -> tuple[PrimValue | None, ...]:
    if reserve.sizes != (0,):
        return NotImplemented
    return native_batch_norm_backward(grad, x, weight, mean, variance, save_mean, save_rstd, True, eps, (True, True, True))


@decomposition(aten.miopen_batch_norm_backward)
def miopen_batch_norm_backward(
    x: PrimValue,
    grad: PrimValue,
    weight: PrimValue,
    mean: PrimValue | None,
    variance: PrimValue | None,
    save_mean: PrimValue | None,
    save_rstd: PrimValue | None,
    eps: float,
) -> tuple[PrimValue | None, ...]:
    return native_batch_norm_backward(grad, x, weight, mean, variance, save_mean, save_rstd, True, eps, (True, True, True))
