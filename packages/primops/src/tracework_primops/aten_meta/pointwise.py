"""ATen rows: elementwise ops and their backward forms."""

from __future__ import annotations

import torch

from .. import _torch
from ..broadcasting import broadcast_sizes
from ..errors import FakeTensorError
from ..promotion import complex_of, float_dtype, real_of, result_dtype
from ..spec import TensorSpec
from ..symbols import active
from .dtypes import check_dtypes, refusal
from .rows import HALVES, check_number, clamp_bound, elementwise, elementwise_with_number, fresh, row, same_layout, wrap_dim


def _tensors(operands):
    return [x for x in operands if x.__class__ is TensorSpec]


def _binary(dtype_of):
    def rule(a, b, *rest, **options):
        if b.__class__ is TensorSpec and a.__class__ is TensorSpec:
            if a.dtype is b.dtype and dtype_of is result_dtype:
                return elementwise(a.dtype, [a, b])
            dtype = dtype_of(a, b)
            common = result_dtype(a, b) if dtype is torch.bool else dtype
            return elementwise(dtype, [_cast(a, common), _cast(b, common)])
        return elementwise_with_number(dtype_of(a, b), a if a.__class__ is TensorSpec else b)

    return rule


def _cast(x, dtype):
    """An operand as eager's kernel for the CPU reads it: what has another dtype than the operands together is copied first."""
    if x.dtype is dtype or x.device.type != "cpu" or not x.ndim:
        return x
    return TensorSpec(dtype, x.device, x.sizes, same_layout(x), 0)


def _unary(dtype_of):
    return lambda a, *rest, **options: elementwise(dtype_of(a), [a])


def _same(a):
    return a.dtype


def _bool(*operands):
    return torch.bool


def _names(text: str, *suffixes: str) -> list[str]:
    return [f"{name}.{suffix}" for name in text.split() for suffix in suffixes]


def _not_of_bools(a, b):
    dtype = result_dtype(a, b)
    if dtype is torch.bool:
        raise NotImplementedError("not implemented for 'Bool'")
    return dtype


def _difference(a, b):
    if any(x.__class__ is bool or getattr(x, "dtype", None) is torch.bool for x in (a, b)):
        raise refusal(torch.ops.aten.sub.Tensor, (a, b))(
            "Subtraction, the `-` operator, with a bool tensor is not supported; use `^` or `logical_xor()`."
        )
    return result_dtype(a, b)


def _with_multiple(dtype_of):
    """The rule of a sum of one operand and a multiple of the other."""
    rule = _binary(dtype_of)

    def checked(a, b, alpha=1):
        spec = rule(a, b)
        if alpha.__class__ is complex and not spec.dtype.is_complex:
            raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
        if alpha.__class__ is bool and spec.dtype is not torch.bool:
            raise RuntimeError("Boolean alpha only supported for Boolean results.")
        if alpha.__class__ is float and not (spec.dtype.is_floating_point or spec.dtype.is_complex):
            raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
        check_number(alpha, spec.dtype)
        return spec

    return checked


ARITHMETIC = "mul bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__"
row(*_names(ARITHMETIC, "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar"))(_binary(result_dtype))
row("add.Tensor", "add.Scalar")(_with_multiple(result_dtype))
row("sub.Tensor", "sub.Scalar")(_with_multiple(_difference))
row("rsub.Tensor", "rsub.Scalar")(
    lambda a, b, alpha=1: _with_multiple(_difference)(b, a, alpha)
)  # iterates as the difference it is
UNLESS_BOOL = "remainder fmod bitwise_left_shift bitwise_right_shift __lshift__ __rshift__"
row(*_names(UNLESS_BOOL, "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar"))(_binary(_not_of_bools))
row(*_names("gcd lcm floor_divide", "default"), "floor_divide.Scalar")(_binary(_not_of_bools))
row(*_names("maximum minimum fmax fmin hypot nextafter", "default"))(_binary(result_dtype))
row("pow.Tensor_Tensor")(_binary(result_dtype))


@row("pow.Tensor_Scalar", "pow_.Scalar")  # `pow.Scalar` has a number as base
def pow_by_number(a, b):
    dtype = result_dtype(a, b)
    if b.__class__ is int and not (dtype.is_floating_point or dtype.is_complex):
        if b < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        check_number(b, dtype)
    if dtype in HALVES:
        check_number(b, dtype)
    return elementwise(dtype, [a])


@row("pow.Scalar")
def pow_of_number(a, b):
    """Row-major whatever the exponents are."""
    return fresh(b, b.sizes, result_dtype(a, b))


@row("ldexp.Tensor")
def ldexp(a, b):
    """The product with a power of a number; with an integer's it is in half precision, or in that of a number in a tensor, in some
    versions of torch alone."""
    if a.dtype.is_floating_point and (a.dtype.itemsize == 2 or not a.ndim) and not b.dtype.is_floating_point:
        return NotImplemented
    power = pow_of_number(2.0, b)
    return elementwise(result_dtype(a, power), [a, power])


@row("heaviside.default")
def heaviside(a, b):
    if a.dtype.is_complex or b.dtype.is_complex:
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if a.dtype is not b.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return elementwise(a.dtype, [a, b])


@row("glu.default")
def glu(x, dim=-1):
    """One half times the sigmoid of the other, each as it is in memory."""
    if not x.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    dim = wrap_dim(dim, x.ndim)
    if x.sizes[dim].__class__ is not int:
        return NotImplemented
    if x.sizes[dim] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {x.sizes[dim]}")
    return elementwise(x.dtype, [x.replace(sizes=(*x.sizes[:dim], x.sizes[dim] // 2, *x.sizes[dim + 1 :]))])


row(
    "div.Tensor",
    "div.Scalar",
    "true_divide.Tensor",
    "atan2.default",
    "xlogy.Tensor",
    "logaddexp.default",
    "copysign.Tensor",
    "copysign.Scalar",
    *_names("special_zeta special_xlog1py", "default", "self_scalar", "other_scalar"),
    *_names("logaddexp2 igamma igammac", "default"),
)(_binary(float_dtype))
row(*_names("eq ne lt le gt ge", "Tensor", "Scalar"), *_names("logical_and logical_or logical_xor", "default"))(_binary(_bool))


@row("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a, b, *, rounding_mode=None):
    dtype = float_dtype(a, b) if rounding_mode is None else _not_of_bools(a, b)
    if rounding_mode is not None and dtype.is_complex:
        raise NotImplementedError(f"rounded division is not implemented for {dtype}")
    return elementwise(dtype, _tensors((a, b)))


FLOAT_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc "
    "erfinv reciprocal lgamma digamma special_erfcx special_i0 special_ndtri logit deg2rad rad2deg i0 sinc special_i0e special_i1 "
    "special_i1e special_bessel_j0 special_bessel_j1 special_spherical_bessel_j0 special_entr special_log_ndtr"
)
SAME_UNARY = (
    "positive sign sgn floor ceil round trunc frac relu silu hardswish hardsigmoid elu selu leaky_relu softplus mish "
    "log_sigmoid threshold hardshrink bitwise_not square conj_physical"
)
row(*_names(FLOAT_UNARY, "default"))(_unary(float_dtype))
row(*_names(SAME_UNARY, "default"))(_unary(_same))


@row("round.decimals")
def round_decimals(x, *, decimals):
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"rounding to decimals is not implemented for {x.dtype}")
    return elementwise(x.dtype, [x])


@row("hardtanh.default")
def hardtanh(x, min_val=-1, max_val=1):
    if x.dtype is torch.uint8 and not _torch.CLAMPS_AT_LIMITS and (min_val < 0 or max_val < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    clamp_bound(min_val, x.dtype, upper=False)
    clamp_bound(max_val, x.dtype, upper=True)
    return into_empty_like(x)


@row(*_names("relu6 nan_to_num", "default"))
def into_empty_like(a, *rest, **options):
    """Eager computes into a tensor that it allocated as `empty_like` does."""
    return TensorSpec(a.dtype, a.device, a.sizes, same_layout(a))


@row("fill.Tensor")
def fill_with_tensor(a, value):
    if value.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    return into_empty_like(a)


@row("fill.Scalar")
def fill(x, value):
    check_number(value, x.dtype)
    return into_empty_like(x)


row(*_names("logical_not isnan isinf isfinite signbit isposinf isneginf", "default"))(_unary(_bool))
row("abs.default")(_unary(lambda a: real_of(a.dtype)))


@row("angle.default")
def angle(a):
    """Eager computes angles of complex numbers into a row-major tensor."""
    return fresh(a, a.sizes, real_of(a.dtype)) if a.dtype.is_complex else elementwise(float_dtype(a), [a])


@row("neg.default")
def neg(a):
    if a.dtype is torch.bool:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported; use the `~` or `logical_not()` operator instead."
        )
    return elementwise(a.dtype, [a])


@row("gelu.default")
def gelu(a, *, approximate="none"):
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return elementwise(a.dtype, [a])


@row("softshrink.default")
def softshrink(a, lambd=0.5):
    if not 0 <= lambd <= torch.finfo(a.dtype).max:
        raise RuntimeError(
            f"lambda must be in range [0, {torch.finfo(a.dtype).max:g}] for input dtype {a.dtype}, but found {lambd}"
        )
    return elementwise(a.dtype, [a])


@row("celu.default")
def celu(a, alpha=1.0):
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return elementwise(a.dtype, [a])


@row("complex.default")
def complex(a, b):
    halves = (torch.float16, torch.float32, torch.float64)
    if a.dtype not in halves or a.dtype is not b.dtype:
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors of one dtype but got {a.dtype} and {b.dtype}"
        )
    return elementwise(complex_of(a.dtype), [a, b])


@row("mvlgamma.default")
def mvlgamma(a, p):
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    return fresh(a, a.sizes, float_dtype(a))


@row("_prelu_kernel.default")
def prelu(a, weight):
    return into_empty_like(a)


@row("frexp.Tensor")
def frexp(a):
    mantissa = into_empty_like(a)
    return mantissa, mantissa.replace(dtype=torch.int32)


@row("_prelu_kernel_backward.default")
def prelu_backward(grad, a, weight):
    made = elementwise(a.dtype, [a, weight, grad])
    return made, made


def _loss(laid_out_as):
    """The loss of operands of one dtype and size; others are checked by torch's meta kernel."""

    def rule(a, b, *weights_and_reduction):
        *weights, reduction = weights_and_reduction
        factors = [w for w in weights if w is not None]
        if a.sizes != b.sizes or a.dtype is not b.dtype or broadcast_sizes(a.sizes, *[w.sizes for w in factors]) != a.sizes:
            return NotImplemented
        if any(w.dtype is not a.dtype for w in factors):
            return NotImplemented
        return fresh(a, ()) if reduction else elementwise(a.dtype, [laid_out_as(a, b)])

    return rule


_of_inputs, _of_targets = _loss(lambda a, b: a), _loss(lambda a, b: b)


@row("binary_cross_entropy.default")
def binary_cross_entropy(a, b, weight=None, reduction=1):
    return _of_inputs(a, b, weight, reduction)


@row("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(a, b, weight=None, pos_weight=None, reduction=1):
    return _of_targets(a, b, weight, pos_weight, reduction)


@row("soft_margin_loss.default")
def soft_margin_loss(a, b, reduction=1):
    check_dtypes(torch.ops.aten.neg.default, (a,))
    _check_result("soft_margin_loss", a, b)
    return _of_inputs(a, b.replace(dtype=a.dtype), reduction)


def _check_result(name, a, b):
    """The loss has the dtype of the input, whatever that of the target is."""
    wide = result_dtype(a, b)
    if not torch.can_cast(wide, a.dtype):
        raise RuntimeError(f"{name}: result type {wide} can't be cast to the desired output type {a.dtype}")


@row("dist.default")
def dist(a, b, p=2):
    return fresh(elementwise(real_of(result_dtype(a, b)), [a, b]), ())


@row("clamp_min.default")
def clamp_min(a, bound):
    return clamp(a, bound)


@row("clamp_max.default")
def clamp_max(a, bound):
    return clamp(a, None, bound)


@row("clamp.default")
def clamp(a, min=None, max=None):
    dtype = result_dtype(a, min, max)
    clamp_bound(min, dtype, upper=False)
    clamp_bound(max, dtype, upper=True)
    return elementwise(dtype, [a])


@row("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
def clamp_tensor(a, min=None, max=None):
    return elementwise(result_dtype(a, min, max), _tensors((a, min, max)))


@row("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(condition, a, b):
    if condition.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}")
    return elementwise(result_dtype(a, b), _tensors((condition, a, b)))


@row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(a, mask, value):
    if value.__class__ is TensorSpec and value.ndim:
        raise RuntimeError(
            f"masked_fill only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    check_number(value, a.dtype)
    return fresh(a, elementwise(a.dtype, _tensors((a, mask, value))).sizes)


@row("addcdiv.default")
def addcdiv(a, b, c, *, value=1):
    if not any(x.dtype.is_floating_point or x.dtype.is_complex for x in (b, c)):
        raise RuntimeError("Integer division with addcdiv is no longer supported; divide first, with the rounding that is meant.")
    return addcmul(a, b, c, value=value)


@row("addcmul.default")
def addcmul(a, b, c, *, value=1):
    dtype = result_dtype(a, b, c)
    check_number(value, torch.float32 if dtype in HALVES else dtype)
    return elementwise(dtype, [a, b, c])


@row("lerp.Scalar", "lerp.Tensor")
def lerp(a, b, weight):
    if weight.__class__ is TensorSpec and weight.ndim and weight.dtype is not a.dtype:
        raise RuntimeError(f"lerp: expected weights of {a.dtype}, but got {weight.dtype}")
    return elementwise(a.dtype, _tensors((a, b, weight)))


BACKWARD = (
    "gelu_backward silu_backward threshold_backward hardswish_backward hardsigmoid_backward tanh_backward sigmoid_backward "
    "leaky_relu_backward hardtanh_backward softplus_backward mish_backward"
)


@row(*_names(BACKWARD, "default"), "logit_backward.default")
def grad_and_saved(grad, saved, *rest, **options):
    return elementwise(result_dtype(grad, saved), [grad, saved])


@row("elu_backward.default")
def elu_backward(grad, alpha, scale, input_scale, is_result, saved):
    return elementwise(result_dtype(grad, saved), [grad, saved])


@row("log_sigmoid_backward.default")
def log_sigmoid_backward(grad, x, buffer):
    return TensorSpec(grad.dtype, grad.device, grad.sizes, same_layout(grad), 0) if _alike(grad, x) else NotImplemented


@row("rrelu_with_noise_backward.default")
def rrelu_backward(grad, x, noise, lower, upper, training, self_is_result):
    """While training the noise is what the gradient is multiplied by."""
    factor = noise if training and upper - lower > 1e-6 else x
    return elementwise(grad.dtype, [factor, grad]) if _alike(grad, factor) else NotImplemented


@row("glu_backward.default")
def glu_backward(grad, x, dim):
    return fresh(x, x.sizes) if x.ndim and grad.dtype is x.dtype and grad.ndim == x.ndim else NotImplemented


@row("native_dropout_backward.default")
def native_dropout_backward(grad, mask, scale):
    """Bool and integer gradients are multiplied by a float."""
    return elementwise(result_dtype(grad, mask, scale), [grad, mask])


@row("native_dropout.default")
def native_dropout(a, p, train):
    out = elementwise(a.dtype, [a])
    return out, TensorSpec(torch.bool, a.device, out.sizes, out.strides, 0)


@row(
    "fake_quantize_per_tensor_affine_cachemask.default",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    "fake_quantize_per_channel_affine_cachemask.default",
)
def fake_quantize_cachemask(x, *rest):
    """The rounded values, and where the gradient goes through."""
    strides = same_layout(x)
    return (TensorSpec(x.dtype, x.device, x.sizes, strides, 0), TensorSpec(torch.bool, x.device, x.sizes, strides, 0))


@row("_fused_moving_avg_obs_fq_helper.default")
def fused_moving_average_fake_quantize(
    x, observes, quantizes, low, high, scale, zero_point, average, least, most, axis, per_row=False, *rest
):
    channels = x.sizes[axis] if per_row else None
    if per_row and any(t.ndim != 1 or not active.equal(t.sizes[0], channels) for t in (low, high, scale, zero_point)):
        raise FakeTensorError(f"the first call gives statistics and scales their size, one for each of {channels} channels")
    return fake_quantize_cachemask(x)


@row("_fake_quantize_learnable_per_tensor_affine.default", "_fake_quantize_learnable_per_channel_affine.default")
def fake_quantize_learnable(x, *rest):
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0)


@row(
    "_fake_quantize_learnable_per_tensor_affine_backward.default", "_fake_quantize_learnable_per_channel_affine_backward.default"
)
def fake_quantize_learnable_backward(grad, x, scale, zero_point, *rest):
    """Of the values, the scales and the zero points; of one scale as a row of one, whatever its shape."""
    of_scales = fresh(scale, scale.sizes if scale.ndim else (1,), x.dtype)
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0), of_scales, of_scales


@row("huber_loss.default")
def huber_loss(a, b, reduction=1, delta=1.0):
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    _check_result("huber_loss", a, b)
    loss = pointwise_loss(a, b, reduction, a.dtype)
    # eager makes the result like the input, and makes it anew where the target is larger
    return loss.replace(strides=same_layout(a)) if reduction == 0 and loss.sizes == a.sizes else loss


@row("smooth_l1_loss.default")
def smooth_l1_loss(a, b, reduction=1, beta=1.0):
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    return pointwise_loss(a, b, reduction)


@row("mse_loss.default")
def pointwise_loss(a, b, reduction=1, dtype=None):
    both = elementwise(dtype or result_dtype(a, b), [a, b])
    return both if reduction == 0 else fresh(both, ())


@row("huber_loss_backward.default")
def huber_loss_backward(grad, a, b, *rest):
    for given in (a, b):
        if given.dtype != grad.dtype:
            raise RuntimeError(f"Found dtype {given.dtype} but expected {grad.dtype}")
    return elementwise(grad.dtype, [grad, a, b])


@row("mse_loss_backward.default", "smooth_l1_loss_backward.default")
def pointwise_loss_backward(grad, a, b, *rest):
    return elementwise(result_dtype(grad, a, b), [grad, a, b])


def _alike(*operands):
    """Whether all have the same sizes and the same dtype."""
    return all(x.sizes == operands[0].sizes and x.dtype is operands[0].dtype for x in operands)


@row("binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(grad, x, target, weight=None, reduction=1):
    alike = _alike(x, target) and grad.dtype is x.dtype and grad.sizes in ((), x.sizes) and (weight is None or _alike(x, weight))
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0) if alike else NotImplemented


@row("soft_margin_loss_backward.default")
def soft_margin_loss_backward(grad, x, target, reduction):
    if not _alike(x, target) or grad.dtype is not x.dtype or grad.sizes not in ((), x.sizes):
        return NotImplemented
    return elementwise(x.dtype, [target, elementwise(x.dtype, [target, x])])


@row("log_sigmoid_forward.default")
def log_sigmoid_forward(x):
    """The result, and what the backward of a CPU reads; other devices keep nothing."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f'"log_sigmoid" not implemented for {x.dtype}')
    if x.device.type == "cpu":
        return fresh(x, x.sizes), fresh(x, x.sizes)
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0), fresh(x, (0,))


@row("_fused_adagrad.default", "_fused_adagrad.tensor_lr")
def fused_adagrad(params, grads, sums, steps, *, lr, **options):
    """Copies of what is written; the counts of steps are not where the learning rate is a tensor."""
    written = (params, grads, sums) if lr.__class__ is TensorSpec else (params, grads, sums, steps)
    return tuple([TensorSpec(t.dtype, t.device, t.sizes, same_layout(t), 0) for t in tensors] for tensors in written)
