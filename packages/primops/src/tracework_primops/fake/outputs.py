"""`out=` on fakes: what eager demands of the tensors that results are written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from .._torch import OpOverload
from ..broadcasting import is_dense
from ..errors import FakeTensorError
from ..spec import TensorSpec
from ..symbols import active
from .memo import Template
from .tensor import FakeTensor, from_template

if TYPE_CHECKING:
    from .mode import FakeMode

EXACT = frozenset(
    """
    _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd _log_softmax _native_batch_norm_legit _softmax
    addbmm addmm addmv alias_copy all amax amin aminmax any argmax argmin as_strided_copy avg_pool2d avg_pool3d baddbmm bitwise_not bmm
    bucketize ceil complex conj_physical cross cummax cummin diag diag_embed diagonal_copy dot expand_copy floor frac frexp gather
    gelu hardshrink hash_tensor heaviside histc histogram index_add index_copy index_reduce index_select isin isneginf isposinf
    kthvalue linalg_cholesky_ex linalg_cross linalg_eigvalsh linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lu
    linalg_lu_factor_ex linalg_lu_solve linalg_qr linalg_solve_triangular linalg_vector_norm linear log_sigmoid_forward log_softmax
    logcumsumexp masked_scatter masked_select max.dim_max min.dim_min mm mode multinomial mv nan_to_num narrow_copy
    native_batch_norm neg ormqr permute_copy polar put renorm round scatter scatter_add scatter_reduce searchsorted sgn sign
    signbit slice_scatter softmax softplus softshrink sort split_with_sizes_copy squeeze_copy t_copy take topk transpose_copy
    triangular_solve tril triu trunc unbind_copy unfold_copy unsqueeze_copy vdot view_copy where
    """.split()
)
"""Ops that refuse an out= of another dtype than their results'. Found by giving every op of op_db wider outputs."""
CASTS = frozenset(
    """
    _chunk_cat _fft_c2c _fft_c2r _fft_r2c acos acosh add addcdiv addcmul addr angle asin asinh atan atan2 atanh bitwise_and
    bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor cat cholesky cholesky_inverse cholesky_solve
    clamp.Tensor_out clamp_max.Tensor_out clamp_min.Tensor_out copysign cos cosh deg2rad digamma div eq erf erfc erfinv exp
    exp2 expm1 floor_divide fmax fmin fmod gcd ge geqrf gt hypot i0 igamma igammac lcm ldexp le lerp.Scalar_out lgamma
    linalg_eig linalg_eigvals linalg_householder_product linalg_lstsq log log10 log1p log2 logaddexp logaddexp2 logical_and
    logical_not logical_or logical_xor logit lt max.unary_out maximum min.unary_out minimum mul mvlgamma ne nextafter
    polygamma pow rad2deg reciprocal remainder rsqrt sigmoid sin sinc sinh special_airy_ai special_bessel_j0
    special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u
    special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_entr special_erfcx special_hermite_polynomial_h
    special_hermite_polynomial_he special_i0e special_i1 special_i1e special_laguerre_polynomial_l
    special_legendre_polynomial_p special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0
    special_xlog1py special_zeta sqrt stack sub tan tanh xlogy
    """.split()
)
"""Ops that compute as without out= and cast what comes out, or those of their overloads that do. Others compute in the dtype of the output
(`sum`), or refuse it (`abs`). Found by giving every op of op_db outputs of other dtypes, and numbers in the places of its tensors."""
APART = frozenset(
    """
    cat gather index_add index_copy index_select kthvalue masked_scatter masked_select nonzero put scatter scatter_add
    scatter_reduce index_reduce take
    """.split()
)
"""Ops whose kernels write while they still read: an output must not share memory with an input."""
CONCATENATION = frozenset(("cat", "stack", "_chunk_cat"))


def functional_twin(func: OpOverload, names: Sequence[str]) -> OpOverload | None:
    """The overload with the same arguments but for the outputs `names`, None when there is no such one."""
    packet = func.overloadpacket
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if a.name not in names]
    for overload in packet.overloads():
        found = getattr(packet, overload)
        if not found._schema.is_mutable and [(a.name, str(a.type)) for a in found._schema.arguments] == wanted:
            return found
    return None


def fit_outputs(mode: FakeMode, func: OpOverload, args: Sequence[Any], targets: Sequence[Any], result: Any) -> None:
    """Raises what eager raises for these outputs; empty ones made in this trace take the sizes of the results.

    Raises:
        RuntimeError, TypeError: as eager.
        FakeTensorError: eager would resize memory that was there before, or write something else than the result as another dtype.
    """
    name = func._schema.name.partition("::")[2]
    results = result if result.__class__ in (tuple, list) else (result,)
    for target, template in zip(_flat(targets), _flat(results)):
        if target.__class__ is not FakeTensor or template.__class__ is not Template:
            continue
        _check_dtype(func, name, target, template.spec.dtype)
        check_memory(name, target)
        if name in APART and any(_overlap(target, template.spec, source) for source in _fakes(args)):
            raise RuntimeError(f"{name}: an input and the tensor that is written to share memory; clone the input")
        sizes = target.spec.sizes
        if len(sizes) != len(template.spec.sizes) or not all(map(active.equal, sizes, template.spec.sizes)):
            if target.storage.real or target.numel() != 0:
                raise FakeTensorError(
                    f"{func}: an output of sizes {sizes} would be resized; give one of sizes {template.spec.sizes}"
                )
            resized = Template(template.spec.replace(dtype=target.spec.dtype), mode.table)
            take_layout(mode, target, resized)
            target.storage.first = resized.spec


def take_layout(mode: FakeMode, target: FakeTensor, template: Template) -> None:
    """The tensor, which stays the same object over the same storage, gets other sizes and strides."""
    after = from_template(mode, template, target.storage)
    with _torch.below_autograd():
        target.data = after
    target.spec, target.is_symbolic = after.spec, after.is_symbolic


def _flat(values: Any) -> list[Any]:
    return [x for v in values for x in (_flat(v) if isinstance(v, (tuple, list)) else [v])]


def _check_dtype(func: OpOverload, name: str, target: FakeTensor, dtype: torch.dtype) -> None:
    if target.spec.dtype is dtype:
        return
    names = name, f"{name}.{func._overloadname}"
    if not EXACT.isdisjoint(names):
        raise RuntimeError(f"{name}: expected out= of dtype {dtype}, but got {target.spec.dtype}")
    if CASTS.isdisjoint(names):
        raise FakeTensorError(f"{func}: what becomes of an out= of {target.spec.dtype} for a result of {dtype} is not known")
    if not torch.can_cast(dtype, target.spec.dtype):
        error = TypeError if name in CONCATENATION else RuntimeError
        raise error(f"{name}: result type {dtype} can't be cast to the desired output type {target.spec.dtype}")


def check_memory(name: str, target: FakeTensor) -> None:
    """Eager's demand on what an op writes to, which some that write the same everywhere do not have. Raises RuntimeError."""
    if 0 in target.spec.strides and 0 not in target.spec.sizes:
        if any(t.__class__ is int and t == 0 and s != 1 for s, t in zip(target.spec.sizes, target.spec.strides)):
            raise RuntimeError(f"{name}: more than one element of the written-to tensor refers to a single memory location")


def _fakes(values: Sequence[Any]) -> Iterator[FakeTensor]:
    for value in values:
        if value.__class__ is FakeTensor:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _fakes(value)


def _overlap(target: FakeTensor, result: TensorSpec, source: FakeTensor) -> bool:
    """Whether memory is shared for certain: dense tensors of known sizes whose ranges of memory meet.

    The output is taken to have the sizes of the result: eager looks after it has resized it.
    """
    if target.storage is not source.storage:
        return False
    if target is source:
        return True
    a, b = target.spec, source.spec
    if (
        a.is_symbolic
        or b.is_symbolic
        or result.is_symbolic
        or not (is_dense(a.sizes, a.strides) and is_dense(b.sizes, b.strides))
    ):
        return False
    (a_begin, a_end), (b_begin, b_end) = _range(a, result.numel()), _range(b, b.numel())
    return a_begin < b_end and b_begin < a_end


def _range(spec: TensorSpec, elements: Any) -> tuple[Any, Any]:
    """Where the bytes of so many elements lie, as numbers where the spec has no symbols."""
    begin = spec.offset * spec.dtype.itemsize
    return begin, begin + elements * spec.dtype.itemsize
