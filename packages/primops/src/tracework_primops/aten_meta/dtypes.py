"""Which dtypes eager's kernels refuse, where the shape rules know nothing of it.

Found by running the samples of op_db in every dtype on the CPU: an op is listed when every sample without a floating or complex tensor
was refused. Kernels on a GPU refuse the same `INTEGRAL` ones, other than `ONLY_CPU`; what they do with bools differs, so
`BOOL` holds for the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..spec import TensorSpec
from .rows import HALVES, check_number

__all__ = ["check_dtypes", "check_numbers", "refusal"]

INTEGRAL = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _batch_norm_with_update _log_softmax _native_batch_norm_legit _prelu_kernel _safe_softmax
    _softmax _softmax_backward_data adaptive_max_pool2d adaptive_max_pool3d binary_cross_entropy binary_cross_entropy_with_logits celu
    cholesky cholesky_inverse cholesky_solve elu frac gelu geqrf glu grid_sampler_2d grid_sampler_3d hardshrink hardsigmoid hardswish
    histc histogram huber_loss hypot igamma igammac leaky_relu lerp linalg_householder_product linalg_lu linalg_lu_factor_ex
    linalg_solve_triangular log_sigmoid_forward logaddexp logaddexp2 logcumsumexp max_unpool2d max_unpool3d mish mse_loss
    multi_margin_loss multilabel_margin_loss_forward native_batch_norm native_group_norm native_layer_norm nextafter nll_loss_forward
    normal ormqr rrelu_with_noise segment_reduce silu smooth_l1_loss softplus softshrink triangular_solve uniform upsample_linear1d
    upsample_trilinear3d
    """.split()
)
"""NotImplementedError unless some tensor is floating or complex."""
STATISTICS = frozenset(("dist", "linalg_vector_norm", "renorm", "std", "std_mean", "var", "var_mean"))
"""The same with `refusal`."""
BOOL = frozenset(
    """
    abs addbmm addcmul addmm addmv baddbmm avg_pool2d bmm bucketize ceil convolution dot floor kthvalue linalg_cross max_pool2d_with_indices
    max_pool3d_with_indices median mv nanmedian reflection_pad1d round threshold trace trunc vdot
    """.split()
)
"""NotImplementedError when all tensors are bool."""
BOOL_NEVER = frozenset(("argmax", "argmin", "hardtanh", "neg", "relu", "topk"))
"""The same with `refusal`."""
COMPLEX = frozenset(
    """
    __lshift__ __rshift__
    _adaptive_avg_pool2d _adaptive_avg_pool3d _batch_norm_with_update _ctc_loss _histogramdd_bin_edges _log_softmax
    _native_batch_norm_legit _prelu_kernel _safe_softmax _softmax _softmax_backward_data _upsample_bilinear2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax atan2 avg_pool2d
    avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min copysign cummax cummin digamma elu erf erfc erfinv floor
    floor_divide fmod frac fractional_max_pool2d fractional_max_pool3d gcd ge gelu glu grid_sampler_2d grid_sampler_3d gt hardshrink
    hardsigmoid hardswish hardtanh histc histogram huber_loss hypot i0 igamma igammac kthvalue lcm le leaky_relu lgamma log_sigmoid_forward logaddexp2
    logit lt max max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d median min mish mse_loss
    multi_margin_loss multilabel_margin_loss_forward mvlgamma nanmedian native_batch_norm native_group_norm native_layer_norm
    nextafter nll_loss_forward polygamma relu remainder round rrelu_with_noise segment_reduce sign signbit smooth_l1_loss softplus
    softshrink special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w
    special_entr special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he special_i0e special_i1 special_i1e
    special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr special_modified_bessel_i0
    special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py
    special_zeta threshold trunc upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_trilinear3d xlogy
    """.split()
)
"""NotImplementedError when some tensor is complex."""
COMPLEX_NEVER = frozenset(
    """
    _fft_r2c argmax argmin deg2rad exponential fmax fmin isneginf isposinf maximum minimum rad2deg sort topk
    """.split()
)
"""The same with `refusal`."""
FLOATING = frozenset(
    "__lshift__ __rshift__ bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor gcd lcm".split()
)
"""NotImplementedError when some tensor is floating or complex."""
BYTES = frozenset(
    """
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_bicubic2d upsample_bilinear2d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d
    """.split()
)
"""NotImplementedError unless some tensor is floating or complex, or of bytes."""
ALIKE: dict[str, tuple[int, ...]] = {
    "_cdist_forward": (0, 1),
    "_softmax_backward_data": (0, 1),
    "addbmm": (0, 1, 2),
    "binary_cross_entropy": (0, 1),
    "convolution": (0, 1, 2),
    "index_copy": (0, 3),
    "index_reduce": (0, 3),
    "lerp": (0, 1),
    "linalg_cross": (0, 1),
    "nll_loss2d_forward": (0, 2),
    "nll_loss_forward": (0, 2),
    "polar": (0, 1),
    "put": (0, 2),
}
"""Places of arguments that RuntimeError is raised for unless their dtypes are one; found by giving one tensor of the samples another."""
NUMBERS: dict[str, bool] = {
    "addbmm": True,
    "addmm": True,
    "addmv": False,
    "addr": False,
    "baddbmm": True,
    "celu": True,
    "elu": True,
    "hardshrink": False,
    "index_add": False,
    "leaky_relu": True,
    "lerp": True,
    "rrelu_with_noise": True,
    "softplus": True,
    "threshold": False,
}
"""Operators whose numbers have to fit the dtype of their first tensor, True: or float32, where that is a half."""
ONLY_CPU = BOOL | BOOL_NEVER | {"histc", "uniform", "normal"}
EMPTY = frozenset(
    """
    _adaptive_avg_pool2d _histogramdd_bin_edges _log_softmax _softmax _softmax_backward_data addmm addmv amax amin baddbmm bmm bucketize
    cholesky cummax cummin exponential fractional_max_pool2d fractional_max_pool3d grid_sampler_2d linalg_lu linalg_lu_factor_ex max
    max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d median min multi_margin_loss
    multilabel_margin_loss_forward mv nanmedian normal
    """.split()
)
"""Kernels that may return, or refuse the sizes, before they look at the dtype where a tensor is empty."""
KERNEL_DTYPES = {
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}


Dtypes = frozenset[torch.dtype]


def _none_fractional(dtypes: Dtypes) -> bool:
    return not any(d.is_floating_point or d.is_complex for d in dtypes)


def _other_than_bytes(dtypes: Dtypes) -> bool:
    return _none_fractional(dtypes) and torch.uint8 not in dtypes


def _only_bool(dtypes: Dtypes) -> bool:
    return dtypes == {torch.bool}


def _some_complex(dtypes: Dtypes) -> bool:
    return any(d.is_complex for d in dtypes)


def _some_fractional(dtypes: Dtypes) -> bool:
    return not _none_fractional(dtypes)


TABLES: tuple[tuple[frozenset[str], type[Exception] | None, Callable[[Dtypes], bool]], ...] = (
    (INTEGRAL, NotImplementedError, _none_fractional),
    (STATISTICS, None, _none_fractional),
    (BYTES, NotImplementedError, _other_than_bytes),
    (BOOL, NotImplementedError, _only_bool),
    (BOOL_NEVER, None, _only_bool),
    (COMPLEX, NotImplementedError, _some_complex),
    (COMPLEX_NEVER, None, _some_complex),
    (FLOATING, NotImplementedError, _some_fractional),
)


@functools.cache
def _refused(func: Any) -> tuple[str, list[tuple[type[Exception] | None, Callable[[Dtypes], bool]]]] | None:
    """The name of an overload that is in the tables, and what is raised for which dtypes, None for `refusal`."""
    name = func._schema.name.partition("::")[2]
    name = name if name.startswith("_") else name.rstrip("_")
    rules = [(error, refuses) for table, error, refuses in TABLES if name in table]
    return (name, rules) if rules and func.namespace == "aten" else None


@functools.cache
def _alike(func: Any) -> tuple[int, ...]:
    """The places in ALIKE of an overload that is there."""
    return ALIKE.get(func._schema.name.partition("::")[2].removesuffix("_"), ()) if func.namespace == "aten" else ()


def check_dtypes(func: Any, args: Sequence[Any]) -> None:
    """Raises what eager's kernel of `func` raises for tensors of dtypes that it has no code for.

    Raises:
        NotImplementedError, RuntimeError, TypeError: as eager.
    """
    alike = _alike(func)
    if alike:
        tensors = [a for a in (args[place] for place in alike if place < len(args)) if a.__class__ is TensorSpec]
        if any(t.dtype is not tensors[0].dtype for t in tensors):
            raise RuntimeError(f"{func}: expected tensors of one dtype, but got {', '.join(str(t.dtype) for t in tensors)}")
    refused = _refused(func)
    if refused is None:
        return
    name, rules = refused
    specs = list(_specs(args))
    dtypes = frozenset(s.dtype for s in specs)
    for error, refuses in rules:
        if not specs or not refuses(dtypes) or (name in EMPTY and any(0 in s.sizes for s in specs)):
            continue
        if name in ONLY_CPU and refuses in (_none_fractional, _only_bool) and specs[0].device.type != "cpu":
            continue
        error = error or refusal(func, args)
        raise error(f"\"{name}\" not implemented for '{KERNEL_DTYPES.get(specs[0].dtype, specs[0].dtype)}'")


@functools.cache
def _numbers(func: Any) -> tuple[dict[int, str], bool] | None:
    """Places and names of the numbers that an overload in NUMBERS takes, and what that says of it."""
    wide = NUMBERS.get(func._schema.name.partition("::")[2].removesuffix("_")) if func.namespace == "aten" else None
    if wide is None:
        return None
    return {place: a.name for place, a in enumerate(func._schema.arguments) if isinstance(a.type, torch.NumberType)}, wide


def check_numbers(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises RuntimeError, as eager, for numbers that the dtype which a kernel computes in cannot hold."""
    found = _numbers(func)
    if found is None or args[0].__class__ is not TensorSpec or 0 in args[0].sizes:
        return
    places, wide = found
    dtype = torch.float32 if wide and args[0].dtype in HALVES else args[0].dtype
    for place, name in places.items():
        check_number(args[place] if place < len(args) else kwargs.get(name), dtype)


def _specs(args: Sequence[Any]) -> Iterator[TensorSpec]:
    for a in args:
        if a.__class__ is TensorSpec:
            yield a
        elif isinstance(a, list | tuple):
            yield from _specs(a)


def refusal(func: Any, args: Sequence[Any]) -> type[Exception]:
    """The class of what eager's kernel on the CPU raises for tensors of such dtypes: it differs between the minor versions of torch."""
    error = eager_error(func, args, {})
    return RuntimeError if error is None else type(error)


def eager_error(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """What eager's kernel on the CPU raises for tensors like these, of which it must not read more than indices."""
    places = {place for place, a in enumerate(func._schema.arguments) if a.alias_info is not None}
    try:
        func(*[_real(a, place in places) for place, a in enumerate(args)], **{name: _real(a) for name, a in kwargs.items()})
    except Exception as error:
        return error
    return None


def _real(a: Any, is_aliased: bool = False) -> Any:
    """The argument of a call of the kernel: a tensor for a description of one; open sizes are two.

    Memory that nobody writes to is no more than an address. What may be an index is one zero, seen everywhere.
    """
    if a.__class__ is not TensorSpec:
        return [_real(b, is_aliased) for b in a] if isinstance(a, list | tuple) else a
    if a.is_symbolic or not (is_aliased or a.dtype.is_floating_point or a.dtype.is_complex):
        return torch.zeros((), dtype=a.dtype).expand([s if s.__class__ is int else 2 for s in a.sizes])
    return torch.empty_strided(a.sizes, a.strides, dtype=a.dtype)
