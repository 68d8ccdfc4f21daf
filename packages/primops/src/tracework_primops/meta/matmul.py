"""Result specs of matrix products: contiguous."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..op import Op, Scalar
from ..spec import TensorSpec
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


@rule()
def mm(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    return TensorSpec(a.dtype, a.device, (a.sizes[0], b.sizes[1]))


@rule()
def int_mm(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    return TensorSpec(torch.int32, a.device, (a.sizes[0], b.sizes[1]))


@rule()
def addmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, beta: Scalar, alpha: Scalar) -> TensorSpec:
    return TensorSpec(a.dtype, a.device, (a.sizes[0], b.sizes[1]))


@rule()
def bmm(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    return TensorSpec(a.dtype, a.device, (a.sizes[0], a.sizes[1], b.sizes[2]))


@rule()
def baddbmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, beta: Scalar, alpha: Scalar) -> TensorSpec:
    return bmm(a, b)


@rule()
def mv(a: TensorSpec, x: TensorSpec) -> TensorSpec:
    return TensorSpec(a.dtype, a.device, (a.sizes[0],))


@rule("dot", "vdot")
def dot(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    return TensorSpec(a.dtype, a.device, ())


@rule()
def scaled_mm(
    a: TensorSpec,
    b: TensorSpec,
    sa: TensorSpec,
    sb: TensorSpec,
    bias: TensorSpec | None,
    sr: TensorSpec | None,
    out_dtype: torch.dtype | None,
    fast: bool,
) -> TensorSpec:
    return TensorSpec(out_dtype or a.dtype, a.device, (a.sizes[0], b.sizes[1]))


@rule()
def grouped_mm(a: TensorSpec, b: TensorSpec, offs: Any, bias: TensorSpec | None, out_dtype: torch.dtype | None) -> TensorSpec:
    dtype = out_dtype or a.dtype
    if a.ndim == 2 and b.ndim == 2:
        return TensorSpec(dtype, a.device, (offs.sizes[0], a.sizes[0], b.sizes[1]))
    if a.ndim == 2 or b.ndim == 2:
        return TensorSpec(dtype, a.device, (a.sizes[-2], b.sizes[-1]))
    return bmm(a, b)


@rule()
def attention(q: TensorSpec, k: TensorSpec, v: TensorSpec, *others: object) -> tuple[TensorSpec, ...]:
    rows = TensorSpec(torch.float64 if q.dtype == torch.float64 else torch.float32, q.device, q.sizes[:3])
    return TensorSpec(q.dtype, q.device, (*q.sizes[:3], v.sizes[3])), rows, rows


@rule()
def attention_backward(grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, *others: object) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(x.dtype, x.device, x.sizes) for x in (q, k, v))


@rule()
def attention_sums(grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, logs: TensorSpec, *others: Any) -> TensorSpec:
    queries, keys = q.sizes[2], k.sizes[2]
    count = {"queries": queries, "keys": keys, "distances": queries + keys - 1}[others[-1]]
    return TensorSpec(logs.dtype, logs.device, (*q.sizes[:2], count))
