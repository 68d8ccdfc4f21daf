"""Elementwise ops and their backward forms: what eager refuses, and where it lays results out otherwise than the prims do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _torch
from ..broadcasting import broadcast_sizes
from ..elementwise import elementwise, same_layout
from ..errors import FakeTensorError
from ..promotion import real_of, result_dtype
from ..spec import TensorSpec
from ..symbols import active
from .dtypes import check_dtypes, refusal
from .rows import (
    HALVES,
    WHOLE,
    Given,
    Refused,
    Results,
    check,
    check_number,
    clamp_bound,
    demand,
    fresh,
    laid_out,
    like_first,
    like_operands,
    like_operands_and_numbers,
    like_self,
    names,
    overload,
    refuses,
    row,
    row_major,
    wrap_dim,
)

Value = Any
"""A spec or a number."""
Declined = Any
"""None, or NotImplemented, which leaves the call to torch's meta kernel."""

TAKEN_WHOLE = "selu square conj_physical relu6 isfinite silu_backward mish_backward"
WHOLE.update(map(overload, [*names(TAKEN_WHOLE, "default"), *names("where", "ScalarOther", "ScalarSelf", "Scalar")]))


def _no_bools(a: Value, b: Value, *rest: Value, **options: Value) -> None:
    check(result_dtype(a, b) is not torch.bool, NotImplementedError)


UNLESS_BOOL = "remainder fmod bitwise_left_shift bitwise_right_shift __lshift__ __rshift__"
refuses(*names(UNLESS_BOOL, "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar"))(_no_bools)
refuses(*names("gcd lcm floor_divide", "default"), "floor_divide.Scalar")(_no_bools)


@refuses("add.Tensor", "add.Scalar")
def add(a: Value, b: Value, alpha: Value = 1) -> None:
    dtype = result_dtype(a, b)
    check(dtype.is_complex or alpha.__class__ is not complex)
    check(dtype is torch.bool or alpha.__class__ is not bool)
    check(dtype.is_complex or dtype.is_floating_point or alpha.__class__ is not float)
    check_number(alpha, dtype)


@refuses("sub.Tensor", "sub.Scalar")
def sub(a: Value, b: Value, alpha: Value = 1) -> None:
    if any(x.__class__ is bool or getattr(x, "dtype", None) is torch.bool for x in (a, b)):
        raise Refused(refusal(torch.ops.aten.sub.Tensor, (a, b)))
    add(a, b, alpha)


@refuses("rsub.Tensor", "rsub.Scalar")
def rsub(a: Value, b: Value, alpha: Value = 1) -> None:
    sub(b, a, alpha)


def _sum_layout(spec: TensorSpec, a: Value, b: Value, alpha: Value = 1) -> TensorSpec:
    """Eager makes no tensor of the multiple, only copies on a CPU of operands in another dtype."""

    def read(x: Value) -> Value:
        copied = x.__class__ is TensorSpec and x.ndim and x.dtype is not spec.dtype and x.device.type == "cpu"
        return TensorSpec(spec.dtype, x.device, x.sizes, same_layout(x)) if copied else x

    return spec if alpha == 1 else like_operands_and_numbers(spec, read(a), read(b))


laid_out(_sum_layout, *names("add sub", "Tensor", "Scalar"))
laid_out(lambda spec, a, b, alpha=1: _sum_layout(spec, b, a, alpha), "rsub.Tensor", "rsub.Scalar")
ONE_OPERAND = (
    "logit sinc special_entr elu celu selu gelu silu mish hardswish hardsigmoid softplus leaky_relu relu threshold "
    "hardshrink softshrink"
)
laid_out(like_operands, "round.decimals", *names(ONE_OPERAND, "default"))
laid_out(like_operands, *names("clamp clamp_min clamp_max", "Tensor"), *names("div", "Tensor_mode", "Scalar_mode"))
laid_out(like_operands, *names("where", "self", "ScalarOther", "ScalarSelf", "Scalar"))
laid_out(like_operands, "pow.Tensor_Scalar", *names("clamp clamp_min clamp_max", "default"))
laid_out(row_major, "pow.Scalar", "mvlgamma.default")


@refuses("pow.Tensor_Scalar")
def pow_by_number(a: TensorSpec, b: Value) -> None:
    dtype = result_dtype(a, b)
    is_whole = b.__class__ is int and not (dtype.is_floating_point or dtype.is_complex)
    check(not is_whole or b >= 0)
    if is_whole or dtype in HALVES:
        check_number(b, dtype)


@row("pow_.Scalar")  # `pow.Scalar` has a number as base
def pow_in_place(a: TensorSpec, b: Value) -> TensorSpec:
    pow_by_number(a, b)
    return elementwise(result_dtype(a, b), [a])


@row("ldexp.Tensor")
def ldexp(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    """The product with a power of a number; with an integer's it is in half precision, or in that of a number in a tensor, in some
    versions of torch alone."""
    if a.dtype.is_floating_point and (a.dtype.itemsize == 2 or not a.ndim) and not b.dtype.is_floating_point:
        return NotImplemented
    power = fresh(b, b.sizes, result_dtype(2.0, b))
    return elementwise(result_dtype(a, power), [a, power])


def _one_real_dtype(a: TensorSpec, b: TensorSpec) -> bool:
    return a.dtype is b.dtype and not a.dtype.is_complex


def _is_vector_of_numbers(value: Value) -> bool:
    """Whether what is to be one number is a tensor with dims."""
    return value.__class__ is TensorSpec and value.ndim > 0


PARTS = (torch.float16, torch.float32, torch.float64)
demand(_one_real_dtype, "heaviside.default")
demand(lambda a, b: a.dtype in PARTS and a.dtype is b.dtype, "complex.default")
demand(lambda x, *, decimals: x.dtype.is_floating_point, "round.decimals", error=NotImplementedError)
demand(lambda a, value: not _is_vector_of_numbers(value), "fill.Tensor")
demand(lambda a: a.dtype is not torch.bool, "neg.default")
demand(lambda a, *, approximate="none": approximate in ("none", "tanh"), "gelu.default")
demand(lambda a, lambd=0.5: 0 <= lambd <= torch.finfo(a.dtype).max, "softshrink.default")
demand(lambda a, alpha=1.0: alpha != 0, "celu.default")
demand(lambda a, p: p > 0, "mvlgamma.default")
demand(lambda mask, a, b: mask.dtype in (torch.bool, torch.uint8), *names("where", "self", "ScalarOther", "ScalarSelf", "Scalar"))
demand(lambda a, b, c, *, value=1: any(x.dtype.is_floating_point or x.dtype.is_complex for x in (b, c)), "addcdiv.default")
demand(lambda a, b, weight: not _is_vector_of_numbers(weight) or weight.dtype is a.dtype, "lerp.Scalar", "lerp.Tensor")
demand(lambda a, b, reduction=1, delta=1.0: delta > 0, "huber_loss.default")
demand(lambda a, b, reduction=1, beta=1.0: beta >= 0, "smooth_l1_loss.default")
demand(lambda grad, a, b, *rest: a.dtype is b.dtype is grad.dtype, "huber_loss_backward.default")


@refuses("glu.default")
def glu(x: TensorSpec, dim: int = -1) -> Declined:
    check(x.ndim > 0)
    size = x.sizes[wrap_dim(dim, x.ndim)]
    if size.__class__ is not int:
        return NotImplemented
    check(size % 2 == 0)
    return None


def _glu_layout(spec: TensorSpec, x: TensorSpec, dim: int = -1) -> TensorSpec:
    """Each half as it is in memory."""
    return elementwise(spec.dtype, [x.replace(sizes=spec.sizes)])


laid_out(_glu_layout, "glu.default")


@refuses("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a: Value, b: Value, *, rounding_mode: str | None = None) -> None:
    if rounding_mode is not None:
        dtype = result_dtype(a, b)
        check(dtype is not torch.bool and not dtype.is_complex, NotImplementedError)


@refuses("hardtanh.default")
def hardtanh(x: TensorSpec, min_val: Value = -1, max_val: Value = 1) -> None:
    check(x.dtype is not torch.uint8 or _torch.CLAMPS_AT_LIMITS or min_val >= 0 and max_val >= 0)
    clamp_bound(min_val, x.dtype, upper=False)
    clamp_bound(max_val, x.dtype, upper=True)


laid_out(
    like_first,
    *names("hardtanh relu6 _prelu_kernel deg2rad rad2deg", "default"),
    *names("fill", "Scalar", "Tensor"),
    "frexp.Tensor",
)


@refuses("fill.Scalar")
def fill(x: TensorSpec, value: Value) -> None:
    check_number(value, x.dtype)


def _angle_layout(spec: TensorSpec, a: TensorSpec) -> TensorSpec:
    """Eager computes angles of complex numbers into a row-major tensor."""
    return row_major(spec) if a.dtype.is_complex else like_operands(spec, a)


row("nan_to_num.default", reads="self")(like_self)  # of complex numbers, too, which the decomposition leaves to eager
laid_out(_angle_layout, "angle.default")


def _log_sigmoid_layout(spec: TensorSpec, x: TensorSpec) -> TensorSpec:
    """Of the result, and of what the backward of a CPU reads; other devices keep nothing."""
    return row_major(spec) if x.device.type == "cpu" or spec.sizes != x.sizes else like_self(x)


laid_out(_log_sigmoid_layout, "log_sigmoid_forward.default")


def _of_one_size(a: TensorSpec, b: TensorSpec, *weights: Given) -> Declined:
    """Operands of one dtype and size; torch's meta kernel checks others."""
    factors = [w for w in weights if w is not None]
    if a.sizes != b.sizes or a.dtype is not b.dtype or broadcast_sizes(a.sizes, *[w.sizes for w in factors]) != a.sizes:
        return NotImplemented
    return NotImplemented if any(w.dtype is not a.dtype for w in factors) else None


def _loss_layout(of: int) -> Callable[..., TensorSpec]:
    """A loss without a reduction lies as the argument at this place."""
    return lambda spec, *arguments, **options: like_operands(spec, arguments[of]) if spec.ndim else spec


def _loss_of_both(spec: TensorSpec, a: TensorSpec, b: TensorSpec, *rest: Value, **options: Value) -> TensorSpec:
    return like_operands(spec, a, b) if spec.ndim else spec


laid_out(_loss_of_both, "mse_loss.default", "smooth_l1_loss.default")
laid_out(lambda spec, grad, a, weight: like_operands(spec, a, weight, grad), "_prelu_kernel_backward.default")
laid_out(_loss_layout(0), "binary_cross_entropy.default", "soft_margin_loss.default")
laid_out(_loss_layout(1), "binary_cross_entropy_with_logits.default")


@refuses("binary_cross_entropy.default", "binary_cross_entropy_with_logits.default")
def binary_cross_entropy(a: TensorSpec, b: TensorSpec, *rest: Value) -> Declined:
    return _of_one_size(a, b, *[weight for weight in rest if weight.__class__ is TensorSpec])


@refuses("soft_margin_loss.default")
def soft_margin_loss(a: TensorSpec, b: TensorSpec, reduction: int = 1) -> Declined:
    check_dtypes(torch.ops.aten.neg.default, (a,))
    return _of_one_size(a, b.replace(dtype=a.dtype))


def _keeps_dtype(a: TensorSpec, b: TensorSpec, *rest: Value) -> bool:
    """The loss has the dtype of the input, whatever that of the target is."""
    return torch.can_cast(result_dtype(a, b), a.dtype)


demand(_keeps_dtype, "soft_margin_loss.default", "huber_loss.default")


@row("dist.default")
def dist(a: TensorSpec, b: TensorSpec, p: Value = 2) -> TensorSpec:
    return fresh(elementwise(real_of(result_dtype(a, b)), [a, b]), ())


@row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(a: TensorSpec, mask: TensorSpec, value: Value) -> TensorSpec:
    """Also with a number in a tensor of a dtype that the decomposition leaves to eager."""
    check(mask.dtype is torch.bool and not _is_vector_of_numbers(value))
    check_number(value, a.dtype)
    return fresh(a, elementwise(a.dtype, [x for x in (a, mask, value) if x.__class__ is TensorSpec]).sizes)


@refuses("addcdiv.default", "addcmul.default")
def addcmul(a: TensorSpec, b: TensorSpec, c: TensorSpec, *, value: Value = 1) -> None:
    dtype = result_dtype(a, b, c)
    check_number(value, torch.float32 if dtype in HALVES else dtype)


BACKWARD = (
    "gelu_backward silu_backward threshold_backward hardswish_backward hardsigmoid_backward tanh_backward sigmoid_backward "
    "leaky_relu_backward hardtanh_backward softplus_backward mish_backward logit_backward elu_backward huber_loss_backward "
    "mse_loss_backward smooth_l1_loss_backward"
)
laid_out(like_operands_and_numbers, *names("special_xlog1py", "default", "self_scalar", "other_scalar"))
laid_out(
    like_operands,
    "isposinf.default",
    "isneginf.default",
    "addcdiv.default",
    "addcmul.default",
    *names("lerp", "Scalar", "Tensor"),
    *names(BACKWARD, "default"),
)


@row("log_sigmoid_backward.default")
def log_sigmoid_backward(grad: TensorSpec, x: TensorSpec, buffer: TensorSpec) -> TensorSpec:
    return like_self(grad) if _alike(grad, x) else NotImplemented


@row("rrelu_with_noise_backward.default", reads="grad_output self noise lower upper training")
def rrelu_backward(grad: TensorSpec, x: TensorSpec, noise: TensorSpec, lower: float, upper: float, training: bool) -> TensorSpec:
    """While training the noise is what the gradient is multiplied by."""
    factor = noise if training and upper - lower > 1e-6 else x
    return elementwise(grad.dtype, [factor, grad]) if _alike(grad, factor) else NotImplemented


@row("glu_backward.default")
def glu_backward(grad: TensorSpec, x: TensorSpec, dim: int) -> TensorSpec:
    return fresh(x, x.sizes) if x.ndim and grad.dtype is x.dtype and grad.ndim == x.ndim else NotImplemented


@row("native_dropout_backward.default")
def native_dropout_backward(grad: TensorSpec, mask: TensorSpec, scale: float) -> TensorSpec:
    """Bool and integer gradients are multiplied by a float."""
    return elementwise(result_dtype(grad, mask, scale), [grad, mask])


CACHING = "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask"
laid_out(
    like_first, *names(CACHING, "default"), "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", "native_dropout.default"
)  # fmt: skip


LEARNABLE = "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine"


row(*names(LEARNABLE, "default"), reads="self")(like_self)
STATISTICS = "running_min running_max scale zero_point"


@row("_fused_moving_avg_obs_fq_helper.default", reads=f"self ch_axis per_row_fake_quant {STATISTICS}")
def fused_moving_average_fake_quantize(x: TensorSpec, axis: int, per_row: bool, *statistics: TensorSpec) -> Results:
    """The rounded values, and where the gradient goes through."""
    channels = x.sizes[axis] if per_row else 1
    if per_row and any(t.ndim != 1 or not active.equal(t.sizes[0], channels) for t in statistics):
        raise FakeTensorError(f"the first call gives statistics and scales their size, one for each of {channels} channels")
    found = like_self(x)
    return found, found.replace(dtype=torch.bool)


@row(*(f"{name}_backward.default" for name in LEARNABLE.split()), reads="self scale")
def fake_quantize_learnable_backward(x: TensorSpec, scale: TensorSpec) -> Results:
    """Of the values, the scales and the zero points; of one scale as a row of one, whatever its shape."""
    of_scales = fresh(scale, scale.sizes if scale.ndim else (1,), x.dtype)
    return like_self(x), of_scales, of_scales


def _huber_layout(spec: TensorSpec, a: TensorSpec, b: TensorSpec, *rest: Value, **options: Value) -> TensorSpec:
    """Eager makes the result like the input, and makes it anew where the target is larger."""
    if not spec.ndim:
        return spec
    return like_first(spec, a) if spec.sizes == a.sizes else like_operands(spec, a, b)


laid_out(_huber_layout, "huber_loss.default")


def _alike(*operands: TensorSpec) -> bool:
    """Whether all have the same sizes and the same dtype."""
    return all(x.sizes == operands[0].sizes and x.dtype is operands[0].dtype for x in operands)


@row("binary_cross_entropy_backward.default", reads="grad_output self target weight")
def binary_cross_entropy_backward(grad: TensorSpec, x: TensorSpec, target: TensorSpec, weight: Given) -> TensorSpec:
    alike = _alike(x, target) and grad.dtype is x.dtype and grad.sizes in ((), x.sizes) and (weight is None or _alike(x, weight))
    return like_self(x) if alike else NotImplemented


@row("soft_margin_loss_backward.default")
def soft_margin_loss_backward(grad: TensorSpec, x: TensorSpec, target: TensorSpec, reduction: int) -> TensorSpec:
    if not _alike(x, target) or grad.dtype is not x.dtype or grad.sizes not in ((), x.sizes):
        return NotImplemented
    return elementwise(x.dtype, [target, elementwise(x.dtype, [target, x])])


@row("_fused_adagrad.default", "_fused_adagrad.tensor_lr", reads="lr self grads state_sums state_steps")
def fused_adagrad(lr: Value, *written: list[TensorSpec]) -> Results:
    """The counts of steps are not written where the learning rate is a tensor."""
    return _copies(*written[:3]) if lr.__class__ is TensorSpec else _copies(*written)


@row("_fused_sgd.default", "_fused_sgd.tensor_lr", reads="self grads momentum_buffer_list")
@row("_fused_adam.tensor_lr", "_fused_adamw.tensor_lr", reads="self grads exp_avgs exp_avg_sqs max_exp_avg_sqs")
def fused_step(*written: list[TensorSpec]) -> Results:
    """torch has no meta kernel for these."""
    return _copies(*written)


def _copies(*written: list[TensorSpec]) -> Results:
    return tuple([like_self(t) for t in tensors] for tensors in written)
