"""Attention in its math form, for callers that want it.

By default the attention kernels stay named externs (`_scaled_dot_product_flash_attention_for_cpu`, `_flash_attention`,
`_efficient_attention`, `_cudnn_attention` and their backward forms): no fusion of prims comes near them. MATH_FORMS has
rows to pass as `decompose(..., changes=MATH_FORMS)`.
"""

from __future__ import annotations

import math

import torch

from .._torch import OpOverload
from ..op import PrimValue, prims
from ..symbols import Expr, Size
from .normalization import softmax
from .table import Rule, aten, decomposition, to, wide


def batched_product(a: PrimValue, b: PrimValue) -> PrimValue:
    """a @ b over equal leading dims."""
    lead = a.sizes[:-2]
    count: Size = 1
    for s in lead:
        count = count * s
    left = prims.reshape(a, (count, *a.sizes[-2:]))
    right = prims.reshape(b, (count, *b.sizes[-2:]))
    return prims.reshape(prims.bmm(left, right), (*lead, a.sizes[-2], b.sizes[-1]))


def _causal_mask(q: PrimValue, k: PrimValue) -> PrimValue:
    rows = prims.unsqueeze(prims.iota(q.sizes[-2], 0, 1, torch.int64, q.device), 1)
    columns = prims.unsqueeze(prims.iota(k.sizes[-2], 0, 1, torch.int64, q.device), 0)
    return prims.ge(rows, columns)


def _scale_of(q: PrimValue, scale: float | None) -> float | None:
    """What products of queries and keys are multiplied by; None where it is of a width that is not known."""
    width = q.sizes[-1]
    if scale is None:
        return None if isinstance(width, Expr) else 1.0 / math.sqrt(width)
    return scale


def scores_of(q: PrimValue, k: PrimValue, mask: PrimValue | None, is_causal: bool, scale: float) -> PrimValue:
    """Masked and scaled products of queries and keys, in the computing dtype."""
    swap = (*range(k.ndim - 2), k.ndim - 1, k.ndim - 2)
    scores = prims.mul(wide(batched_product(q, prims.permute(k, swap))), scale)
    if is_causal:
        scores = prims.where(_causal_mask(q, k), scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype is torch.bool:
        return prims.where(mask, scores, -math.inf)
    return prims.add(scores, to(mask, scores.dtype))


def _repeated(x: PrimValue, heads: Size) -> PrimValue:
    """Key or value heads repeated to the number of query heads."""
    own = x.sizes[-3]
    if own == heads:
        return x
    lead, (length, width) = x.sizes[:-3], x.sizes[-2:]
    wide_sizes = (*lead, own, heads // own, length, width)
    return prims.reshape(prims.expand(prims.unsqueeze(x, x.ndim - 2), wide_sizes), (*lead, heads, length, width))


@decomposition(aten._scaled_dot_product_attention_math)
def attention_math(
    q: PrimValue,
    k: PrimValue,
    v: PrimValue,
    attn_mask: PrimValue | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: PrimValue | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[PrimValue, PrimValue]:
    factor = _scale_of(q, scale)
    if dropout_p or dropout_mask is not None or factor is None:
        return NotImplemented
    if enable_gqa:
        k, v = _repeated(k, q.sizes[-3]), _repeated(v, q.sizes[-3])
    weights = to(softmax(scores_of(q, k, attn_mask, is_causal, factor), -1, False), q.dtype)
    return batched_product(weights, v), weights


def _flash_for_cpu(
    q: PrimValue,
    k: PrimValue,
    v: PrimValue,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: PrimValue | None = None,
    scale: float | None = None,
) -> tuple[PrimValue, PrimValue]:
    factor = _scale_of(q, scale)
    if dropout_p or factor is None:
        return NotImplemented
    scores = scores_of(q, k, attn_mask, is_causal, factor)
    weights = to(softmax(scores, -1, False), q.dtype)
    return batched_product(weights, v), prims.logsumexp(scores, (scores.ndim - 1,), False)


# overload -> math form; not part of DECOMPS because the kernels are faster
MATH_FORMS: dict[OpOverload, Rule] = {aten._scaled_dot_product_flash_attention_for_cpu.default: _flash_for_cpu}
