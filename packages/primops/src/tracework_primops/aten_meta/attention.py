"""Rules for the attention kernels of GPUs.

Most are for symbolic sizes only: with plain ones torch's meta kernels answer, which differ between versions. The row is for an
overload whose meta kernel takes other arguments than the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..elementwise import contiguous
from ..spec import TensorSpec
from ..symbols.expr import floordiv
from .rows import Given, Results, fresh, like_self, row, symbolic


def _heads_inside(like: TensorSpec, sizes: Any) -> TensorSpec:
    """(batch, heads, length, width) in memory as (batch, length, heads, width)."""
    batch, heads, length, width = sizes
    inner = contiguous((batch, length, heads, width))
    return TensorSpec(like.dtype, like.device, tuple(sizes), (inner[0], inner[2], inner[1], inner[3]), 0)


def _in_order_of(q: TensorSpec, sizes: tuple[Any, ...]) -> TensorSpec:
    """Dense, with the axes in q's order in memory."""
    if q.sizes == sizes:
        return like_self(q)
    return _heads_inside(q, sizes) if q.strides[2] != q.sizes[3] else fresh(q, sizes)


@symbolic("_scaled_dot_product_flash_attention.default", reads="query key return_debug_mask")
def flash(q: TensorSpec, k: TensorSpec, debug: bool) -> Results:
    if debug:
        raise NotImplementedError
    seed, offset = fresh(q, (2,), torch.uint64), fresh(q, (), torch.uint64)
    return like_self(q), fresh(q, q.sizes[:3], torch.float32), None, None, q.sizes[2], k.sizes[2], seed, offset, fresh(q, (0,))


@symbolic("_scaled_dot_product_flash_attention_backward.default", reads="query key value")
@symbolic("_scaled_dot_product_cudnn_attention_backward.default", reads="query key value")
def like_operands(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Results:
    return like_self(q), like_self(k), like_self(v)


@symbolic("_scaled_dot_product_efficient_attention.default", reads="query value compute_log_sumexp")
def efficient(q: TensorSpec, v: TensorSpec, compute_log_sumexp: bool) -> Results:
    batch, heads, length, _ = q.sizes
    rows = floordiv(length + 31, 32) * 32 if compute_log_sumexp else 0
    out = _heads_inside(q, (batch, heads, length, v.sizes[3]))
    return out, fresh(q, (batch, heads, rows), torch.float32), fresh(q, (), torch.int64), fresh(q, (), torch.int64)


@symbolic("_scaled_dot_product_efficient_attention_backward.default", reads="query key value attn_bias grad_input_mask")
def efficient_backward(q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: Given, wanted: Sequence[bool]) -> Results:
    if bias is not None and wanted[3]:
        raise NotImplementedError
    return _heads_inside(q, q.sizes), _heads_inside(k, k.sizes), _heads_inside(v, (*k.sizes[:3], v.sizes[3])), None


@row("_efficient_attention_backward.default", reads="query key value bias bias_requires_grad shared_storage_dqdkdv")
def efficient_backward_of_parts(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: Given, has_gradient: bool, shares: bool
) -> Results:
    if shares:
        return NotImplemented
    if bias is None or not has_gradient:
        return like_self(q), like_self(k), like_self(v), None
    *rows, last = bias.sizes
    padded = contiguous((*rows, floordiv(last + 15, 16) * 16))
    return like_self(q), like_self(k), like_self(v), TensorSpec(bias.dtype, bias.device, bias.sizes, padded, 0)


def _cudnn(lse_sizes: Callable[[TensorSpec], Any]) -> Callable[..., Any]:
    def rule(q: TensorSpec, k: TensorSpec, v: TensorSpec, *rest: Any, **options: Any) -> Any:
        out = _in_order_of(q, (*q.sizes[:3], v.sizes[3]))
        state = fresh(q, (), torch.int64)
        return out, fresh(q, lse_sizes(q), torch.float32), None, None, q.sizes[2], k.sizes[2], state, state, None

    return rule


CUDNN = "_scaled_dot_product_cudnn_attention.default"
symbolic(CUDNN)(_cudnn(lambda q: (*q.sizes[:3], 1)))
symbolic(CUDNN)(_cudnn(lambda q: q.sizes[:3]))
