"""Which dtypes eager's kernels refuse, where the shape rules know nothing of it.

Found by running the samples of op_db in every dtype on the CPU: an op is listed when every sample without a floating or complex tensor
was refused. Kernels on a GPU refuse the same `INTEGRAL` ones, other than `ONLY_CPU`; what they do with bools differs, so
`BOOL` holds for the CPU. Empty tensors are never refused here: most kernels return before they look at the dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..spec import TensorSpec

__all__ = ["check_dtypes"]

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
"""The same with RuntimeError."""
BOOL = frozenset(
    """
    abs addbmm addcmul addmv baddbmm bmm bucketize ceil dot floor kthvalue linalg_cross max_pool2d_with_indices
    max_pool3d_with_indices median mv nanmedian reflection_pad1d round threshold trace trunc vdot
    """.split()
)
"""NotImplementedError when all tensors are bool."""
BOOL_NEVER = frozenset(("argmax", "argmin", "hardtanh", "neg", "relu", "topk"))
"""The same with RuntimeError."""
ONLY_CPU = BOOL | BOOL_NEVER | {"histc", "uniform", "normal"}
KERNEL_DTYPES = {
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}


@functools.cache
def _refused(func: Any) -> tuple[str, type[Exception], bool, bool] | None:
    """(name, what is raised, whether bools alone are refused, whether on the CPU alone) for an overload in the tables."""
    name = func._schema.name.partition("::")[2]
    name = name if name.startswith("_") else name.rstrip("_")
    for table, error, only_bool in (
        (INTEGRAL, NotImplementedError, False),
        (STATISTICS, RuntimeError, False),
        (BOOL, NotImplementedError, True),
        (BOOL_NEVER, RuntimeError, True),
    ):
        if func.namespace == "aten" and name in table:
            return name, error, only_bool, name in ONLY_CPU
    return None


def check_dtypes(func: Any, args: Sequence[Any]) -> None:
    """Raises what eager's kernel of `func` raises for tensors of dtypes that it has no code for.

    Raises:
        NotImplementedError, RuntimeError: as eager.
    """
    refused = _refused(func)
    if refused is None:
        return
    name, error, only_bool, only_cpu = refused
    specs = list(_specs(args))
    dtypes = {s.dtype for s in specs}
    if not specs or any(d.is_floating_point or d.is_complex for d in dtypes) or only_bool and dtypes != {torch.bool}:
        return
    if only_cpu and specs[0].device.type != "cpu" or any(size.__class__ is int and size == 0 for s in specs for size in s.sizes):
        return
    raise error(f"\"{name}\" not implemented for '{KERNEL_DTYPES.get(specs[0].dtype, specs[0].dtype)}'")


def _specs(args: Sequence[Any]) -> Iterator[TensorSpec]:
    for a in args:
        if a.__class__ is TensorSpec:
            yield a
        elif isinstance(a, list | tuple):
            yield from _specs(a)
