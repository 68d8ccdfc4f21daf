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
    check_number,
    clamp_bound,
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
    if result_dtype(a, b) is torch.bool:
        raise NotImplementedError("not implemented for 'Bool'")


UNLESS_BOOL = "remainder fmod bitwise_left_shift bitwise_right_shift __lshift__ __rshift__"
refuses(*names(UNLESS_BOOL, "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar"))(_no_bools)
refuses(*names("gcd lcm floor_divide", "default"), "floor_divide.Scalar")(_no_bools)


@refuses("add.Tensor", "add.Scalar")
def add(a: Value, b: Value, alpha: Value = 1) -> None:
    dtype = result_dtype(a, b)
    if alpha.__class__ is complex and not dtype.is_complex:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if alpha.__class__ is bool and dtype is not torch.bool:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if alpha.__class__ is float and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    check_number(alpha, dtype)


@refuses("sub.Tensor", "sub.Scalar")
def sub(a: Value, b: Value, alpha: Value = 1) -> None:
    if any(x.__class__ is bool or getattr(x, "dtype", None) is torch.bool for x in (a, b)):
        raise refusal(torch.ops.aten.sub.Tensor, (a, b))(
            "Subtraction, the `-` operator, with a bool tensor is not supported; use `^` or `logical_xor()`."
        )
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
    if b.__class__ is int and not (dtype.is_floating_point or dtype.is_complex):
        if b < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        check_number(b, dtype)
    if dtype in HALVES:
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


@refuses("heaviside.default")
def heaviside(a: TensorSpec, b: TensorSpec) -> None:
    if a.dtype.is_complex or b.dtype.is_complex:
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if a.dtype is not b.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")


@refuses("glu.default")
def glu(x: TensorSpec, dim: int = -1) -> Declined:
    if not x.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    dim = wrap_dim(dim, x.ndim)
    if x.sizes[dim].__class__ is not int:
        return NotImplemented
    if x.sizes[dim] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {x.sizes[dim]}")
    return None


def _glu_layout(spec: TensorSpec, x: TensorSpec, dim: int = -1) -> TensorSpec:
    """Each half as it is in memory."""
    return elementwise(spec.dtype, [x.replace(sizes=spec.sizes)])


laid_out(_glu_layout, "glu.default")


@refuses("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a: Value, b: Value, *, rounding_mode: str | None = None) -> None:
    if rounding_mode is not None:
        _no_bools(a, b)
        if result_dtype(a, b).is_complex:
            raise NotImplementedError(f"rounded division is not implemented for {result_dtype(a, b)}")


@refuses("round.decimals")
def round_decimals(x: TensorSpec, *, decimals: int) -> None:
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"rounding to decimals is not implemented for {x.dtype}")


@refuses("hardtanh.default")
def hardtanh(x: TensorSpec, min_val: Value = -1, max_val: Value = 1) -> None:
    if x.dtype is torch.uint8 and not _torch.CLAMPS_AT_LIMITS and (min_val < 0 or max_val < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    clamp_bound(min_val, x.dtype, upper=False)
    clamp_bound(max_val, x.dtype, upper=True)


laid_out(
    like_first,
    *names("hardtanh relu6 _prelu_kernel deg2rad rad2deg", "default"),
    *names("fill", "Scalar", "Tensor"),
    "frexp.Tensor",
)


@row("nan_to_num.default")
def nan_to_num(a: TensorSpec, *rest: Value) -> TensorSpec:
    """Of complex numbers, too, which the decomposition leaves to eager."""
    return like_self(a)


@refuses("fill.Tensor")
def fill_with_tensor(a: TensorSpec, value: TensorSpec) -> None:
    if value.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")


@refuses("fill.Scalar")
def fill(x: TensorSpec, value: Value) -> None:
    check_number(value, x.dtype)


def _angle_layout(spec: TensorSpec, a: TensorSpec) -> TensorSpec:
    """Eager computes angles of complex numbers into a row-major tensor."""
    return row_major(spec) if a.dtype.is_complex else like_operands(spec, a)


laid_out(_angle_layout, "angle.default")


@refuses("neg.default")
def neg(a: TensorSpec) -> None:
    if a.dtype is torch.bool:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported; use the `~` or `logical_not()` operator instead."
        )


@refuses("gelu.default")
def gelu(a: TensorSpec, *, approximate: str = "none") -> None:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")


@refuses("softshrink.default")
def softshrink(a: TensorSpec, lambd: Value = 0.5) -> None:
    if not 0 <= lambd <= torch.finfo(a.dtype).max:
        raise RuntimeError(
            f"lambda must be in range [0, {torch.finfo(a.dtype).max:g}] for input dtype {a.dtype}, but found {lambd}"
        )


@refuses("celu.default")
def celu(a: TensorSpec, alpha: Value = 1.0) -> None:
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")


@refuses("complex.default")
def complex_of_parts(a: TensorSpec, b: TensorSpec) -> None:
    halves = (torch.float16, torch.float32, torch.float64)
    if a.dtype not in halves or a.dtype is not b.dtype:
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors of one dtype but got {a.dtype} and {b.dtype}"
        )


@refuses("mvlgamma.default")
def mvlgamma(a: TensorSpec, p: int) -> None:
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")


def _of_one_size(a: TensorSpec, b: TensorSpec, *weights: TensorSpec | None) -> Declined:
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


@refuses("binary_cross_entropy.default")
def binary_cross_entropy(a: TensorSpec, b: TensorSpec, weight: TensorSpec | None = None, reduction: int = 1) -> Declined:
    return _of_one_size(a, b, weight)


@refuses("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    a: TensorSpec, b: TensorSpec, weight: TensorSpec | None = None, pos_weight: TensorSpec | None = None, reduction: int = 1
) -> Declined:
    return _of_one_size(a, b, weight, pos_weight)


@refuses("soft_margin_loss.default")
def soft_margin_loss(a: TensorSpec, b: TensorSpec, reduction: int = 1) -> Declined:
    check_dtypes(torch.ops.aten.neg.default, (a,))
    _check_result("soft_margin_loss", a, b)
    return _of_one_size(a, b.replace(dtype=a.dtype))


def _check_result(name: str, a: TensorSpec, b: TensorSpec) -> None:
    """The loss has the dtype of the input, whatever that of the target is."""
    wide = result_dtype(a, b)
    if not torch.can_cast(wide, a.dtype):
        raise RuntimeError(f"{name}: result type {wide} can't be cast to the desired output type {a.dtype}")


@row("dist.default")
def dist(a: TensorSpec, b: TensorSpec, p: Value = 2) -> TensorSpec:
    return fresh(elementwise(real_of(result_dtype(a, b)), [a, b]), ())


@refuses("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(condition: TensorSpec, a: Value, b: Value) -> None:
    if condition.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}")


@row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(a: TensorSpec, mask: TensorSpec, value: Value) -> TensorSpec:
    """Also with a number in a tensor of a dtype that the decomposition leaves to eager."""
    if value.__class__ is TensorSpec and value.ndim:
        raise RuntimeError(
            f"masked_fill only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    check_number(value, a.dtype)
    return fresh(a, elementwise(a.dtype, [x for x in (a, mask, value) if x.__class__ is TensorSpec]).sizes)


@refuses("addcdiv.default")
def addcdiv(a: TensorSpec, b: TensorSpec, c: TensorSpec, *, value: Value = 1) -> None:
    if not any(x.dtype.is_floating_point or x.dtype.is_complex for x in (b, c)):
        raise RuntimeError("Integer division with addcdiv is no longer supported; divide first, with the rounding that is meant.")
    addcmul(a, b, c, value=value)


@refuses("addcmul.default")
def addcmul(a: TensorSpec, b: TensorSpec, c: TensorSpec, *, value: Value = 1) -> None:
    dtype = result_dtype(a, b, c)
    check_number(value, torch.float32 if dtype in HALVES else dtype)


@refuses("lerp.Scalar", "lerp.Tensor")
def lerp(a: TensorSpec, b: TensorSpec, weight: Value) -> None:
    if weight.__class__ is TensorSpec and weight.ndim and weight.dtype is not a.dtype:
        raise RuntimeError(f"lerp: expected weights of {a.dtype}, but got {weight.dtype}")


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


@row("rrelu_with_noise_backward.default")
def rrelu_backward(
    grad: TensorSpec, x: TensorSpec, noise: TensorSpec, lower: float, upper: float, training: bool, self_is_result: bool
) -> TensorSpec:
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


@row(*names(LEARNABLE, "default"))
def fake_quantize_learnable(x: TensorSpec, *rest: Value) -> TensorSpec:
    return like_self(x)


@row("_fused_moving_avg_obs_fq_helper.default")
def fused_moving_average_fake_quantize(
    x: TensorSpec,
    observes: TensorSpec,
    quantizes: TensorSpec,
    low: TensorSpec,
    high: TensorSpec,
    scale: TensorSpec,
    zero_point: TensorSpec,
    average: float,
    least: int,
    most: int,
    axis: int,
    per_row: bool = False,
    *rest: Value,
) -> tuple[TensorSpec, TensorSpec]:
    """The rounded values, and where the gradient goes through."""
    channels = x.sizes[axis] if per_row else 1
    if per_row and any(t.ndim != 1 or not active.equal(t.sizes[0], channels) for t in (low, high, scale, zero_point)):
        raise FakeTensorError(f"the first call gives statistics and scales their size, one for each of {channels} channels")
    found = like_self(x)
    return found, found.replace(dtype=torch.bool)


@row(*(f"{name}_backward.default" for name in LEARNABLE.split()))
def fake_quantize_learnable_backward(
    grad: TensorSpec, x: TensorSpec, scale: TensorSpec, zero_point: TensorSpec, *rest: Value
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Of the values, the scales and the zero points; of one scale as a row of one, whatever its shape."""
    of_scales = fresh(scale, scale.sizes if scale.ndim else (1,), x.dtype)
    return like_self(x), of_scales, of_scales


def _huber_layout(spec: TensorSpec, a: TensorSpec, b: TensorSpec, *rest: Value, **options: Value) -> TensorSpec:
    """Eager makes the result like the input, and makes it anew where the target is larger."""
    if not spec.ndim:
        return spec
    return like_first(spec, a) if spec.sizes == a.sizes else like_operands(spec, a, b)


laid_out(_huber_layout, "huber_loss.default")


@refuses("huber_loss.default")
def huber_loss(a: TensorSpec, b: TensorSpec, reduction: int = 1, delta: float = 1.0) -> None:
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    _check_result("huber_loss", a, b)


@refuses("smooth_l1_loss.default")
def smooth_l1_loss(a: TensorSpec, b: TensorSpec, reduction: int = 1, beta: float = 1.0) -> None:
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")


@refuses("huber_loss_backward.default")
def huber_loss_backward(grad: TensorSpec, a: TensorSpec, b: TensorSpec, *rest: Value) -> None:
    for given in (a, b):
        if given.dtype != grad.dtype:
            raise RuntimeError(f"Found dtype {given.dtype} but expected {grad.dtype}")


def _alike(*operands: TensorSpec) -> bool:
    """Whether all have the same sizes and the same dtype."""
    return all(x.sizes == operands[0].sizes and x.dtype is operands[0].dtype for x in operands)


@row("binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(
    grad: TensorSpec, x: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None, reduction: int = 1
) -> TensorSpec:
    alike = _alike(x, target) and grad.dtype is x.dtype and grad.sizes in ((), x.sizes) and (weight is None or _alike(x, weight))
    return like_self(x) if alike else NotImplemented


@row("soft_margin_loss_backward.default")
def soft_margin_loss_backward(grad: TensorSpec, x: TensorSpec, target: TensorSpec, reduction: int) -> TensorSpec:
    if not _alike(x, target) or grad.dtype is not x.dtype or grad.sizes not in ((), x.sizes):
        return NotImplemented
    return elementwise(x.dtype, [target, elementwise(x.dtype, [target, x])])


@row("log_sigmoid_forward.default")
def log_sigmoid_forward(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """The result, and what the backward of a CPU reads; other devices keep nothing."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f'"log_sigmoid" not implemented for {x.dtype}')
    if x.device.type == "cpu":
        return fresh(x, x.sizes), fresh(x, x.sizes)
    return like_self(x), fresh(x, (0,))


@row("_fused_adagrad.default", "_fused_adagrad.tensor_lr")
def fused_adagrad(
    params: list[TensorSpec],
    grads: list[TensorSpec],
    sums: list[TensorSpec],
    steps: list[TensorSpec],
    *,
    lr: Value,
    **options: Value,
) -> tuple[list[TensorSpec], ...]:
    """Copies of what is written; the counts of steps are not where the learning rate is a tensor."""
    written = (params, grads, sums) if lr.__class__ is TensorSpec else (params, grads, sums, steps)
    return tuple([like_self(t) for t in tensors] for tensors in written)
