"""Activations and their backward forms: computed in float32 for half precisions and rounded once, as eager's kernels do."""

from __future__ import annotations

import math

import torch

from ..op import PrimValue, prims
from ..promotion import result_dtype
from .pointwise import bounded
from .table import aten, decomposition, dim_of, to, wide

_SQRT_HALF = math.sqrt(0.5)
_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBE = 0.044715
_SIXTH = 0.1666666716337204  # eager's kernels keep it in float32
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _grad_dtype(grad: PrimValue, *saved: PrimValue) -> torch.dtype:
    return result_dtype(grad, *saved)


@decomposition(aten.relu)
def relu(x: PrimValue) -> PrimValue:
    return prims.relu(x)


@decomposition(aten.relu6)
def relu6(x: PrimValue) -> PrimValue:
    return bounded(prims.minimum, prims.relu(x), 6)


@decomposition(aten.threshold)
def threshold(x: PrimValue, threshold: float, value: float) -> PrimValue:
    # NaN is not <= threshold and stays
    return prims.where(prims.le(x, threshold), value, x)


@decomposition(aten.threshold_backward)
def threshold_backward(grad: PrimValue, x: PrimValue, threshold: float) -> PrimValue:
    dtype = _grad_dtype(grad, x)
    return prims.where(prims.le(x, threshold), 0, to(grad, dtype))


@decomposition(aten.gelu)
def gelu(x: PrimValue, *, approximate: str = "none") -> PrimValue:
    y = wide(x)
    if approximate == "tanh":
        inner = prims.mul(prims.add(y, prims.mul(prims.mul(prims.mul(y, y), y), _TANH_CUBE)), _TANH_SCALE)
        factor = prims.add(prims.tanh(inner), 1)
    else:
        factor = prims.add(prims.erf(prims.mul(y, _SQRT_HALF)), 1)
    return to(prims.mul(prims.mul(y, 0.5), factor), x.dtype)


@decomposition(aten.gelu_backward)
def gelu_backward(grad: PrimValue, x: PrimValue, *, approximate: str = "none") -> PrimValue:
    dtype = _grad_dtype(grad, x)
    g, y = wide(grad), wide(x)
    derivative = _gelu_tanh_slope(y) if approximate == "tanh" else _gelu_erf_slope(y)
    return to(prims.mul(g, derivative), dtype)


def _gelu_erf_slope(y: PrimValue) -> PrimValue:
    cdf = prims.mul(prims.add(prims.erf(prims.mul(y, _SQRT_HALF)), 1), 0.5)
    density = prims.mul(prims.exp(prims.mul(prims.mul(y, y), -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
    return prims.add(cdf, prims.mul(y, density))


def _gelu_tanh_slope(y: PrimValue) -> PrimValue:
    square = prims.mul(y, y)
    inner = prims.mul(prims.add(y, prims.mul(prims.mul(square, y), _TANH_CUBE)), _TANH_SCALE)
    factor = prims.add(prims.tanh(inner), 1)
    inner_slope = prims.mul(prims.add(prims.mul(square, 3 * _TANH_CUBE), 1), _TANH_SCALE)
    # (1 + t) * (1 - t) is 1 - t * t, and all that is asked of tanh is 1 more than it.
    right = prims.mul(prims.mul(prims.mul(y, 0.5), prims.mul(factor, prims.sub(2, factor))), inner_slope)
    return prims.add(prims.mul(factor, 0.5), right)


@decomposition(aten.silu)
def silu(x: PrimValue) -> PrimValue:
    y = wide(x)
    return to(prims.mul(y, prims.sigmoid(y)), x.dtype)


@decomposition(aten.silu_backward)
def silu_backward(grad: PrimValue, x: PrimValue) -> PrimValue:
    g, y = wide(grad), wide(x)
    s = prims.sigmoid(y)
    slope = prims.mul(s, prims.add(prims.mul(y, prims.sub(1, s)), 1))
    return to(prims.mul(g, slope), _grad_dtype(grad, x))


def _mish_parts(y: PrimValue) -> tuple[PrimValue, PrimValue, PrimValue]:
    """e = exp(y), n = e * (e + 2) and n + 2, of which tanh(log(1 + e)) is n / (n + 2). From 20 on that is 1, and all stays finite."""
    e = prims.exp(prims.minimum(y, 20))
    n = prims.mul(e, prims.add(e, 2))
    return e, n, prims.add(n, 2)


@decomposition(aten.mish)
def mish(x: PrimValue) -> PrimValue:
    y = wide(x)
    _, n, below = _mish_parts(y)
    return to(prims.mul(y, prims.div(n, below)), x.dtype)


@decomposition(aten.mish_backward)
def mish_backward(grad: PrimValue, x: PrimValue) -> PrimValue:
    g, y = wide(grad), wide(x)
    e, n, below = _mish_parts(y)
    # 1 - tanh(log(1 + e)) ** 2 is 4 * (1 + e) ** 2 / (n + 2) ** 2, and the slope of log(1 + e) is e / (1 + e).
    inverse = prims.div(1, below)
    rest = prims.mul(prims.mul(prims.mul(e, prims.add(e, 1)), 4), prims.mul(inverse, inverse))
    slope = prims.add(prims.mul(n, inverse), prims.mul(y, prims.where(prims.lt(y, 20), rest, 0)))
    return to(prims.mul(g, slope), _grad_dtype(grad, x))


def _clamped(y: PrimValue, low: float, high: float) -> PrimValue:
    return prims.minimum(prims.maximum(y, low), high)


@decomposition(aten.hardswish)
def hardswish(x: PrimValue) -> PrimValue:
    y = wide(x)
    return to(prims.div(prims.mul(y, _clamped(prims.add(y, 3), 0, 6)), 6), x.dtype)


@decomposition(aten.hardswish_backward)
def hardswish_backward(grad: PrimValue, x: PrimValue) -> PrimValue:
    g, y = wide(grad), wide(x)
    middle = prims.mul(g, prims.add(prims.div(y, 3), 0.5))
    inner = prims.where(prims.lt(y, 3), middle, g)
    return to(prims.where(prims.le(y, -3), 0, inner), _grad_dtype(grad, x))


@decomposition(aten.hardsigmoid)
def hardsigmoid(x: PrimValue) -> PrimValue:
    y = wide(x)
    return to(prims.div(_clamped(prims.add(y, 3), 0, 6), 6), x.dtype)


@decomposition(aten.hardsigmoid_backward)
def hardsigmoid_backward(grad: PrimValue, x: PrimValue) -> PrimValue:
    g, y = wide(grad), wide(x)
    inside = prims.logical_and(prims.gt(y, -3), prims.lt(y, 3))
    return to(prims.where(inside, prims.mul(g, _SIXTH), 0), _grad_dtype(grad, x))


@decomposition(aten.hardtanh)
def hardtanh(x: PrimValue, min_val: float = -1, max_val: float = 1) -> PrimValue:
    return bounded(prims.minimum, bounded(prims.maximum, x, min_val), max_val)


@decomposition(aten.hardtanh_backward)
def hardtanh_backward(grad: PrimValue, x: PrimValue, min_val: float, max_val: float) -> PrimValue:
    outside = prims.logical_or(prims.le(x, min_val), prims.ge(x, max_val))
    return prims.where(outside, 0, to(grad, _grad_dtype(grad, x)))


@decomposition(aten.leaky_relu)
def leaky_relu(x: PrimValue, negative_slope: float = 0.01) -> PrimValue:
    y = wide(x)
    return to(prims.where(prims.gt(y, 0), y, prims.mul(y, negative_slope)), x.dtype)


@decomposition(aten.leaky_relu_backward)
def leaky_relu_backward(grad: PrimValue, x: PrimValue, negative_slope: float, self_is_result: bool) -> PrimValue:
    g, y = wide(grad), wide(x)
    return to(prims.where(prims.gt(y, 0), g, prims.mul(g, negative_slope)), _grad_dtype(grad, x))


@decomposition(aten.elu)
def elu(x: PrimValue, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> PrimValue:
    y = wide(x)
    inside = y if input_scale == 1 else prims.mul(y, input_scale)
    negative = prims.mul(prims.expm1(inside), alpha * scale)
    positive = y if scale == 1 else prims.mul(y, scale)
    # as the kernels have it: they differ where 0 * alpha is no number
    takes_curve = prims.lt if x.device.type == "cpu" else prims.le
    return to(prims.where(takes_curve(y, 0), negative, positive), x.dtype)


@decomposition(aten.elu_backward)
def elu_backward(grad: PrimValue, alpha: float, scale: float, input_scale: float, is_result: bool, saved: PrimValue) -> PrimValue:
    g, y = wide(grad), wide(saved)
    coefficient = alpha * scale
    if is_result:
        negative = prims.mul(prims.mul(g, input_scale), prims.add(y, coefficient))
    else:
        negative = prims.mul(prims.mul(g, input_scale * coefficient), prims.exp(prims.mul(y, input_scale)))
    return to(prims.where(prims.le(y, 0), negative, prims.mul(g, scale)), _grad_dtype(grad, saved))


@decomposition(aten.selu)
def selu(x: PrimValue) -> PrimValue:
    return elu(x, _SELU_ALPHA, _SELU_SCALE, 1)


@decomposition(aten.celu)
def celu(x: PrimValue, alpha: float = 1.0) -> PrimValue:
    return elu(x, alpha, 1, 1.0 / alpha)


@decomposition(aten.softplus)
def softplus(x: PrimValue, beta: float = 1, threshold: float = 20) -> PrimValue:
    y = wide(x)
    scaled = y if beta == 1 else prims.mul(y, beta)
    soft = prims.log1p(prims.exp(scaled))
    soft = soft if beta == 1 else prims.div(soft, beta)
    return to(prims.where(prims.gt(scaled, threshold), y, soft), x.dtype)


@decomposition(aten.softplus_backward)
def softplus_backward(grad: PrimValue, x: PrimValue, beta: float, threshold: float) -> PrimValue:
    g, y = wide(grad), wide(x)
    scaled = y if beta == 1 else prims.mul(y, beta)
    z = prims.exp(scaled)
    soft = prims.div(prims.mul(g, z), prims.add(z, 1))
    return to(prims.where(prims.gt(scaled, threshold), g, soft), _grad_dtype(grad, x))


@decomposition(aten.log_sigmoid_forward)
def log_sigmoid_forward(x: PrimValue) -> tuple[PrimValue, PrimValue]:
    """The second result is exp(-|x|) on CPU and empty on other devices."""
    y = wide(x)
    z = prims.exp(prims.neg(prims.abs(y)))
    out = to(prims.sub(prims.minimum(y, 0), prims.log1p(z)), x.dtype)
    return out, to(z, x.dtype) if x.device.type == "cpu" else prims.empty((0,), x.dtype, x.device)


@decomposition(aten.log_sigmoid_backward)
def log_sigmoid_backward(grad: PrimValue, x: PrimValue, buffer: PrimValue) -> PrimValue:
    g, y = wide(grad), wide(x)
    z = prims.exp(prims.neg(prims.abs(y)))
    share = prims.div(z, prims.add(z, 1))
    slope = prims.where(prims.lt(y, 0), prims.sub(1, share), share)
    return to(prims.mul(g, slope), _grad_dtype(grad, x))


@decomposition(aten._prelu_kernel)
def prelu(x: PrimValue, weight: PrimValue) -> PrimValue:
    return prims.where(prims.gt(x, 0), x, prims.mul(weight, x))


@decomposition(aten._prelu_kernel_backward)
def prelu_backward(grad: PrimValue, x: PrimValue, weight: PrimValue) -> tuple[PrimValue, PrimValue]:
    positive = prims.gt(x, 0)
    by_x = prims.where(positive, grad, prims.mul(weight, grad))
    return by_x, prims.where(positive, 0, prims.mul(x, grad))


def _halves(x: PrimValue, dim: int) -> tuple[PrimValue, PrimValue, int]:
    dim = dim_of(x, dim)
    half = x.sizes[dim] // 2
    return prims.slice(x, dim, 0, half, 1), prims.slice(x, dim, half, half + half, 1), dim


@decomposition(aten.glu)
def glu(x: PrimValue, dim: int = -1) -> PrimValue:
    a, b, _ = _halves(x, dim)
    return to(prims.mul(wide(a), prims.sigmoid(wide(b))), x.dtype)


@decomposition(aten.glu_backward)
def glu_backward(grad: PrimValue, x: PrimValue, dim: int) -> PrimValue:
    a, b, dim = _halves(x, dim)
    g, s = wide(grad), prims.sigmoid(wide(b))
    by_a = prims.mul(g, s)
    by_b = prims.mul(prims.mul(by_a, prims.sub(1, s)), wide(a))
    return prims.cat((to(by_a, x.dtype), to(by_b, x.dtype)), dim)


@decomposition(aten.rrelu_with_noise_functional)
def rrelu_with_noise(
    x: PrimValue,
    noise: PrimValue,
    lower: float = 0.125,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[PrimValue, PrimValue]:
    if not training:
        return leaky_relu(x, (lower + upper) / 2), noise
    if generator is not None:
        return NotImplemented
    slopes = prims.rrelu_noise(x, lower, upper)
    return prims.mul(slopes, x), slopes  # laid out as the slopes are


@decomposition(aten.rrelu_with_noise_backward)
def rrelu_with_noise_backward(
    grad: PrimValue, x: PrimValue, noise: PrimValue, lower: float, upper: float, training: bool, self_is_result: bool
) -> PrimValue:
    if training and upper - lower > 1e-6:
        return prims.mul(noise, grad)
    return leaky_relu_backward(grad, x, (lower + upper) / 2, self_is_result)


@decomposition(aten.softshrink)
def softshrink(x: PrimValue, lambd: float = 0.5) -> PrimValue:
    y = wide(x)
    # x*0 keeps NaN
    inner = prims.where(prims.lt(y, -lambd), prims.add(y, lambd), prims.mul(y, 0))
    return to(prims.where(prims.gt(y, lambd), prims.sub(y, lambd), inner), x.dtype)


@decomposition(aten.hardshrink)
def hardshrink(x: PrimValue, lambd: float = 0.5) -> PrimValue:
    inside = prims.logical_and(prims.ge(x, -lambd), prims.le(x, lambd))
    return prims.where(inside, 0, x)


@decomposition(aten.softshrink_backward, aten.hardshrink_backward)
def shrink_backward(grad: PrimValue, x: PrimValue, lambd: float) -> PrimValue:
    inside = prims.logical_and(prims.ge(x, -lambd), prims.le(x, lambd))
    return prims.where(inside, 0, to(grad, _grad_dtype(grad, x)))
