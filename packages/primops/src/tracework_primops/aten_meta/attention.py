"""Rules for the attention kernels of GPUs.

Most are for symbolic sizes only: with plain ones torch's meta kernels answer, which differ between versions. The row is for an
overload whose meta kernel takes other arguments than the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..elementwise import contiguous, same_layout
from ..spec import TensorSpec
from ..symbols.expr import floordiv
from .rows import row, symbolic


def _new(like: TensorSpec, sizes: Any, dtype: torch.dtype | None = None) -> TensorSpec:
    return TensorSpec(dtype or like.dtype, like.device, tuple(sizes), contiguous(tuple(sizes)), 0)


def _like(x: TensorSpec) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0)


def _heads_inside(like: TensorSpec, sizes: Any) -> TensorSpec:
    """(batch, heads, length, width) in memory as (batch, length, heads, width)."""
    batch, heads, length, width = sizes
    inner = contiguous((batch, length, heads, width))
    return TensorSpec(like.dtype, like.device, tuple(sizes), (inner[0], inner[2], inner[1], inner[3]), 0)


def _in_order_of(q: TensorSpec, sizes: tuple[Any, ...]) -> TensorSpec:
    """Dense, with the axes in q's order in memory."""
    if q.sizes == sizes:
        return _like(q)
    return _heads_inside(q, sizes) if q.strides[2] != q.sizes[3] else _new(q, sizes)


@symbolic("_scaled_dot_product_flash_attention.default")
def flash(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    if return_debug_mask:
        raise NotImplementedError
    seed, offset = _new(q, (2,), torch.uint64), _new(q, (), torch.uint64)
    return _like(q), _new(q, q.sizes[:3], torch.float32), None, None, q.sizes[2], k.sizes[2], seed, offset, _new(q, (0,))


@symbolic("_scaled_dot_product_flash_attention_backward.default")
@symbolic("_scaled_dot_product_cudnn_attention_backward.default")
def like_operands(
    grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, *rest: Any, scale: float | None = None
) -> tuple[Any, ...]:
    return _like(q), _like(k), _like(v)


@symbolic("_scaled_dot_product_efficient_attention.default")
def efficient(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    attn_bias: TensorSpec | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    batch, heads, length, _ = q.sizes
    rows = floordiv(length + 31, 32) * 32 if compute_log_sumexp else 0
    out = _heads_inside(q, (batch, heads, length, v.sizes[3]))
    return out, _new(q, (batch, heads, rows), torch.float32), _new(q, (), torch.int64), _new(q, (), torch.int64)


@symbolic("_scaled_dot_product_efficient_attention_backward.default")
def efficient_backward(
    grad: TensorSpec,
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    attn_bias: TensorSpec,
    out: TensorSpec,
    lse: TensorSpec,
    seed: TensorSpec,
    offset: TensorSpec,
    dropout_p: float,
    wanted: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    if attn_bias is not None and wanted[3]:
        raise NotImplementedError
    return _heads_inside(q, q.sizes), _heads_inside(k, k.sizes), _heads_inside(v, (*k.sizes[:3], v.sizes[3])), None


@row("_efficient_attention_backward.default")
def efficient_backward_of_parts(
    grad: TensorSpec,
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    bias: TensorSpec | None,
    out: TensorSpec,
    starts_q: TensorSpec | None,
    starts_k: TensorSpec | None,
    most_q: int,
    most_k: int,
    lse: TensorSpec,
    dropout_p: float,
    seed: TensorSpec,
    offset: TensorSpec,
    mask: int,
    bias_requires_grad: bool,
    **others: Any,
) -> tuple[Any, ...]:
    if others.get("shared_storage_dqdkdv"):
        return NotImplemented
    if bias is None or not bias_requires_grad:
        return _like(q), _like(k), _like(v), None
    *rows, last = bias.sizes
    padded = contiguous((*rows, floordiv(last + 15, 16) * 16))
    return _like(q), _like(k), _like(v), TensorSpec(bias.dtype, bias.device, bias.sizes, padded, 0)


def _cudnn(lse_sizes: Callable[[TensorSpec], Any]) -> Callable[..., Any]:
    def rule(
        q: TensorSpec,
        k: TensorSpec,
        v: TensorSpec,
        attn_bias: TensorSpec | None,
        compute_log_sumexp: bool,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        return_debug_mask: bool = False,
        *,
        scale: float | None = None,
    ) -> Any:
        out = _in_order_of(q, (*q.sizes[:3], v.sizes[3]))
        state = _new(q, (), torch.int64)
        return out, _new(q, lse_sizes(q), torch.float32), None, None, q.sizes[2], k.sizes[2], state, state, None

    return rule


CUDNN = "_scaled_dot_product_cudnn_attention.default"
symbolic(CUDNN)(_cudnn(lambda q: (*q.sizes[:3], 1)))
symbolic(CUDNN)(_cudnn(lambda q: q.sizes[:3]))
