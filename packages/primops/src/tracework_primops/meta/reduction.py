"""Result specs of reductions: contiguous, reduced dims dropped or kept as 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..op import Op, Scalar
from ..promotion import real_of
from ..spec import TensorSpec
from ..symbols import Size
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


def reduced_sizes(sizes: tuple[Size, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[Size, ...]:
    """What is left of `sizes` after reducing dims (non-negative)."""
    if keepdim:
        return tuple([1 if i in dims else s for i, s in enumerate(sizes)])
    return tuple([s for i, s in enumerate(sizes) if i not in dims])


def _reduced(x: TensorSpec, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype | None = None) -> TensorSpec:
    return TensorSpec(dtype or x.dtype, x.device, reduced_sizes(x.sizes, dims, keepdim))


@rule("sum", "prod")
def sum(x: TensorSpec, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype | None) -> TensorSpec:
    return _reduced(x, dims, keepdim, dtype)


@rule("amax", "amin", "xor_sum", "logsumexp")
def amax(x: TensorSpec, dims: tuple[int, ...], keepdim: bool) -> TensorSpec:
    return _reduced(x, dims, keepdim)


@rule("any", "all")
def any(x: TensorSpec, dims: tuple[int, ...], keepdim: bool) -> TensorSpec:
    return _reduced(x, dims, keepdim, torch.bool)


@rule("argmax", "argmin")
def argmax(x: TensorSpec, dim: int, keepdim: bool) -> TensorSpec:
    return _reduced(x, (dim,) if x.sizes else (), keepdim, torch.int64)


@rule()
def var_mean(x: TensorSpec, dims: tuple[int, ...], correction: Scalar, keepdim: bool) -> tuple[TensorSpec, TensorSpec]:
    return _reduced(x, dims, keepdim, real_of(x.dtype)), _reduced(x, dims, keepdim)


@rule()
def norm(x: TensorSpec, ord: Scalar, dims: tuple[int, ...], keepdim: bool) -> TensorSpec:
    return _reduced(x, dims, keepdim, real_of(x.dtype))


@rule()
def count_nonzero(x: TensorSpec, dims: tuple[int, ...]) -> TensorSpec:
    return _reduced(x, dims, False, torch.int64)


@rule("median", "nanmedian", "mode")
def median(x: TensorSpec, dim: int, keepdim: bool) -> tuple[TensorSpec, TensorSpec]:
    dims = (dim,) if x.sizes else ()
    return _reduced(x, dims, keepdim), _reduced(x, dims, keepdim, torch.int64)


@rule()
def kthvalue(x: TensorSpec, k: int, dim: int, keepdim: bool) -> tuple[TensorSpec, TensorSpec]:
    return median(x, dim, keepdim)


@rule()
def histc(x: TensorSpec, bins: int, min: Scalar, max: Scalar) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, (bins,))
