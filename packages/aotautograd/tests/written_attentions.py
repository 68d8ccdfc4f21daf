"""Attention as models write it out: functions of queries, keys and values as their projections give them, (batch, length, heads, width), and of
what they read beside these."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Form:
    """function(q, k, v, *others) -> (batch, length, heads * width) or as the model leaves it. others: makes the rest, given sizes and a device;
    stays: a word of the reason why it is not one operator, where it is not. heads_per_key: how many heads share keys. sums: what gradients of the
    rest are summed up for, if there are any."""

    function: Callable[..., torch.Tensor]
    others: Callable[[Sizes, torch.device], list[torch.Tensor]] = lambda sizes, device: []
    heads_per_key: int = 1
    stays: str = ""
    sums: str = ""


@dataclass(frozen=True)
class Sizes:
    """Of queries; there are as many keys."""

    batch: int
    heads: int
    length: int
    width: int


def heads_first(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [x.transpose(1, 2) for x in tensors]


def heads_last(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().flatten(2)


def vit(q: Any, k: Any, v: Any) -> Any:
    """Scaled queries, nothing between."""
    q, k, v = heads_first(q, k, v)
    weights = ((q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1)
    return heads_last(weights @ v)


def gpt2(q: Any, k: Any, v: Any, triangle: Any) -> Any:
    """A buffer of a triangle, by where, after a division."""
    q, k, v = heads_first(q, k, v)
    scores = torch.matmul(q, k.transpose(-1, -2)) / q.size(-1) ** 0.5
    length = q.size(-2)
    lowest = torch.full([], torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device)
    scores = torch.where(triangle[:, :, :length, :length], scores, lowest)
    weights = F.softmax(scores, dim=-1).type(v.dtype)
    return heads_last(torch.matmul(weights, v))


def triangle(sizes: Sizes, device: torch.device) -> list[torch.Tensor]:
    return [torch.ones(1, 1, 2 * sizes.length, 2 * sizes.length, dtype=torch.bool, device=device).tril()]


def nano(q: Any, k: Any, v: Any) -> Any:
    """A triangle of positions, by masked_fill with -inf."""
    q, k, v = heads_first(q, k, v)
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    hidden = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril() == 0
    return heads_last(F.softmax(scores.masked_fill(hidden, -math.inf), dim=-1) @ v)


def in_place(q: Any, k: Any, v: Any) -> Any:
    """Scores that are written over: a triangle of positions, by masked_fill_."""
    q, k, v = heads_first(q, k, v)
    scores = torch.matmul(q, k.mT)
    scores *= q.size(-1) ** -0.5
    positions = torch.arange(q.size(-2), device=q.device)
    scores.masked_fill_(positions[None, :] > positions[:, None], -math.inf)
    return heads_last(scores.softmax(-1) @ v)


def bert(q: Any, k: Any, v: Any, padding: Any) -> Any:
    """A mask of padding that is added, the lowest number."""
    q, k, v = heads_first(q, k, v)
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))
    weights = F.softmax(scores + padding, dim=-1)
    weights = F.dropout(weights, 0.0, True)
    return heads_last(torch.matmul(weights, v))


def padding(sizes: Sizes, device: torch.device) -> list[torch.Tensor]:
    hidden = torch.arange(sizes.length, device=device) >= torch.arange(sizes.batch, device=device)[:, None] * 3 + sizes.length - 4
    mask = torch.zeros(sizes.batch, 1, 1, sizes.length, dtype=torch.bfloat16, device=device)
    return [mask.masked_fill(hidden[:, None, None], torch.finfo(torch.bfloat16).min)]


def llama(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Heads repeated, a mask added, a softmax in float32."""
    q, k, v = heads_first(q, k, v)
    batch, heads, length, width = k.shape
    times = q.size(1) // heads
    k, v = (x[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width) for x in (k, v))
    weights = torch.matmul(q, k.transpose(2, 3)) * width**-0.5
    weights = weights + mask[:, :, :, :length]
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return heads_last(torch.matmul(F.dropout(weights, p=0.0, training=True), v))


def causal_numbers(sizes: Sizes, device: torch.device) -> list[torch.Tensor]:
    mask = torch.full((sizes.length, sizes.length), torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16, device=device).triu(1)
    return [mask.expand(sizes.batch, 1, -1, -1)]


def alibi(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """BLOOM's: baddbmm with a bias for each key, then a mask by masked_fill."""
    q, k, v = heads_first(q, k, v)
    batch, heads, length, width = q.shape
    q, v = (x.reshape(batch * heads, length, width) for x in (q, v))
    k = k.permute(0, 1, 3, 2).reshape(batch * heads, width, length)
    scores = bias.baddbmm(batch1=q, batch2=k, beta=1.0, alpha=width**-0.5).view(batch, heads, length, length)
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    scores = torch.masked_fill(scores.to(torch.float32), hidden, torch.finfo(torch.float32).min)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return heads_last(torch.bmm(weights.view(batch * heads, length, length), v).view(batch, heads, length, width))


def slopes(sizes: Sizes, device: torch.device) -> list[torch.Tensor]:
    of_heads = 2.0 ** -torch.arange(1, sizes.heads + 1, device=device)
    places = torch.arange(sizes.length, device=device) / sizes.length
    bias = of_heads[:, None, None] * places[None, None]
    return [bias.bfloat16().repeat(sizes.batch, 1, 1)]


def trained_slopes(q: Any, k: Any, v: Any, slope: Any) -> Any:
    """A bias for each key, of a slope of each head that has gradients."""
    q, k, v = heads_first(q, k, v)
    places = torch.arange(k.size(-2), device=q.device, dtype=q.dtype) / k.size(-2)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.size(-1) ** -0.5 + slope[None, :, None, None] * places
    return heads_last(torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v))


def trained(sizes: Sizes, device: torch.device) -> list[torch.Tensor]:
    return [torch.linspace(0.5, 2, sizes.heads, dtype=torch.bfloat16, device=device).requires_grad_()]


def soft_cap(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Gemma's: scores within a cap, then a mask."""
    q, k, v = heads_first(q, k, v)
    weights = torch.matmul(q, k.transpose(2, 3)) * q.size(-1) ** -0.5
    weights = torch.tanh(weights / 2.0) * 2.0 + mask
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return heads_last(torch.matmul(weights, v))


def t5(q: Any, k: Any, v: Any, table: Any, mask: Any, in_place: bool = False) -> Any:
    """A bias by the bucket of the distance, with gradients, and a mask, in one sum that is added, in the model in place; not scaled."""
    q, k, v = heads_first(q, k, v)
    scores = torch.matmul(q, k.transpose(3, 2))
    queries, keys = (torch.arange(x.size(-2), dtype=torch.long, device=q.device) for x in (q, k))
    distance = keys[None, :] - queries[:, None]
    far = (distance > 0).to(torch.long) * 8
    near = torch.min(torch.abs(distance), torch.full_like(distance, 7))
    bias = F.embedding(far + near, table).permute([2, 0, 1]).unsqueeze(0)
    scores = scores.add_(bias + mask) if in_place else scores + (bias + mask)
    weights = F.softmax(scores.float(), dim=-1).type_as(scores)
    return heads_last(torch.matmul(weights, v))


def buckets(sizes: Sizes, device: torch.device) -> list[torch.Tensor]:
    return [torch.randn(16, sizes.heads, dtype=torch.bfloat16, device=device).requires_grad_(), *padding(sizes, device)]


def swin(q: Any, k: Any, v: Any, table: Any, index: Any, shifted: Any) -> Any:
    """Windows as a batch: a bias by a table's index, with gradients, and a mask of each window."""
    q, k, v = heads_first(q, k, v)
    batch, heads, length, _ = q.shape
    scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)
    bias = table[index.view(-1)].view(length, length, -1).permute(2, 0, 1).contiguous()
    scores = scores + bias.unsqueeze(0)
    windows = shifted.shape[0]
    scores = scores.view(-1, windows, heads, length, length) + shifted.unsqueeze(1).unsqueeze(0)
    weights = scores.view(-1, heads, length, length).softmax(-1)
    return heads_last(weights @ v)


def windows(sizes: Sizes, device: torch.device, with_gradient: bool = True) -> list[torch.Tensor]:
    places = torch.arange(sizes.length, device=device)
    index = (places[:, None] - places[None, :]).abs()
    table = torch.randn(sizes.length, sizes.heads, dtype=torch.bfloat16, device=device)
    shifted = torch.zeros(sizes.batch, sizes.length, sizes.length, dtype=torch.bfloat16, device=device)
    shifted[-1].masked_fill_((places[:, None] < 5) != (places[None, :] < 5), -100.0)
    return [table.requires_grad_(with_gradient), index, shifted]


FORMS = {
    "vit": Form(vit),
    "gpt2": Form(gpt2, triangle),
    "nano": Form(nano),
    "in place": Form(in_place, stays="in place"),
    "bert": Form(bert, padding),
    "llama": Form(llama, causal_numbers, heads_per_key=2),
    "alibi": Form(alibi, slopes),
    "trained slopes": Form(trained_slopes, trained, sums="keys"),
    "soft-cap": Form(soft_cap, causal_numbers),
    "t5": Form(t5, buckets, sums="distances"),
    "t5 in place": Form(functools.partial(t5, in_place=True), buckets, stays="in place"),
    "swin": Form(swin, windows, stays="for each query and key"),
    "swin without gradients of its bias": Form(swin, lambda sizes, device: windows(sizes, device, False)),
}
