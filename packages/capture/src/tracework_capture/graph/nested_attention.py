"""Attention of nested tensors where torch has no kernel for them: on a CPU it splits them by lengths that it reads, which no graph can.

Here rows are padded to the longest one, keys behind their row are masked, and of the result the rows are taken: the same sums, in one graph.
"""

from __future__ import annotations

from typing import Any

import torch
from tracework_primops import FakeTensor

from .. import _torch

__all__ = ["attend", "is_attended_here"]

ARGUMENTS = "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"
HEADS_FIRST = 2  # the odd dim of (batch, heads, rows, features)


def is_attended_here(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of scaled_dot_product_attention, on fakes, is one that `attend` computes."""
    given = dict(zip(ARGUMENTS, args)) | kwargs
    tensors = [given.get(name) for name in ("query", "key", "value")]
    if given.get("attn_mask") is not None or given.get("dropout_p"):
        return False
    if given.get("is_causal") or given.get("enable_gqa"):  # which eager refuses, or gives to another kernel
        return False
    return all(isinstance(tensor, _torch.tensors.NESTED) and _is_plain(tensor) for tensor in tensors)


def _is_plain(tensor: Any) -> bool:
    """Whether it is made of fakes of the CPU, has heads, and no holes."""
    of_fakes = isinstance(tensor._values, FakeTensor) and tensor.device.type == "cpu"
    return of_fakes and tensor.dim() == HEADS_FIRST + 2 and tensor._ragged_idx == HEADS_FIRST and tensor.lengths() is None


def attend(*args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention of nested tensors (batch, heads, rows, features)."""
    given = dict(zip(ARGUMENTS, args)) | kwargs
    query, key = given["query"], given["key"]
    q, k, v = (_torch.tensors.jagged_padded(tensor.transpose(1, 2)).transpose(1, 2) for tensor in (query, key, given["value"]))
    columns = k.shape[2]
    mask = torch.arange(columns, device=query.device) < key.offsets().diff().view(-1, 1)
    mask = mask.view(-1, 1, 1, columns)
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=given.get("scale"))
    return _torch.tensors.jagged_of_padded(found.transpose(1, 2), query).transpose(1, 2)
