"""Attention as one operator, whose scores are changed and masked by bodies: functions of (score, b, h, i, j), element by element.

A body is the text of a graph of prims. Its inputs are the scores (batch, heads, queries, keys), the four indices, each along a dim of its own
and of size 1 along the others, then the tensors and the sizes that the functions captured; its result is broadcast to the scores.

Captured tensors with gradients have one dim for each of some axes of the scores, b, h, i or j, or for the distance d = i - j from its lowest on:
the letters of these are the tensor's `axes`. The gradient is a sum over the other axes then, which needs no scores in memory.

`attended` is what a captured graph calls. It computes all scores; a caller that knows where its bodies begin and end makes
`attention_of_bodies` of it, which does not where a kernel follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import _torch
from .graph import parse_graph
from .spec import SizeSpec

LN2 = math.log(2)
NAMESPACE = "tracework"


def attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scores: torch.Tensor,
    indices: Sequence[torch.Tensor],
    changed: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    blocks: Sequence[torch.Tensor],
    extents: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """flex_attention for scores whose score_mod and mask_mod have been applied.

    Args:
        query, key, value: (batch, heads, length, width), heads of the last two repeated where these have fewer.
        scores: (batch, heads, queries, keys), times `scale`; indices: b, h, i, j as tensors of four dims.
        changed, mask: what score_mod and mask_mod gave for these.
        blocks: of a BlockMask, the counts and indices of partial and of full blocks of keys, then of queries; or nothing.
        extents: queries and keys of a block.

    Returns:
        (output, log of the sum of exponentials, largest score), the last two in powers of two; a row without scores gives 0 and -inf.
        The output's axes are in memory in the order of the query's.
    """
    kept = torch.where(mask, changed, -math.inf).expand(scores.shape)
    out, logs, highest = _weighted(kept, query, value)
    return _laid_out(out, query), *_in_powers_of_two(logs, highest)


def with_laid_out_gradient(x: torch.Tensor, order: Sequence[int] | None = None) -> torch.Tensor:
    """The same tensor, whose gradient has its axes in memory in this order, from the slowest to the fastest; without one as flex_attention
    gives it for an operand."""
    return _LaidOut.apply(x, order)  # type: ignore[no-any-return]


class _LaidOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: Sequence[int] | None) -> torch.Tensor:
        ctx.order = _order_in_memory(x.shape, x) if order is None else order
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _ordered(grad, ctx.order), None


def _order_in_memory(sizes: Sequence[Any], like: torch.Tensor) -> list[int]:
    """The axes that flex_attention gives a result of these sizes, from the slowest to the fastest: those of an operand in the order of its
    strides, but the last one without gaps."""
    order = sorted(range(len(sizes)), key=like.stride().__getitem__, reverse=True)
    if any(sizes[axis] != 1 for axis in order[order.index(len(sizes) - 1) + 1 :]):
        order.remove(len(sizes) - 1)
        order.append(len(sizes) - 1)
    return order


def _laid_out(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The same values in memory as flex_attention gives them for an operand."""
    return _ordered(x, _order_in_memory(x.shape, like))


def _ordered(x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same values with axes in this order in memory, from the slowest to the fastest."""
    turned = x.permute(order)
    if turned.stride() == _row_major(turned.shape):
        return x
    return turned.clone(memory_format=torch.contiguous_format).permute([order.index(axis) for axis in range(x.ndim)])


def _new_laid_out(sizes: Sequence[Any], like: torch.Tensor) -> torch.Tensor:
    """A new tensor of that layout."""
    order = _order_in_memory(sizes, like)
    made = like.new_empty([sizes[axis] for axis in order])
    return made.permute([order.index(axis) for axis in range(len(sizes))])


def _row_major(sizes: Sequence[Any]) -> tuple[Any, ...]:
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


def _weighted(kept: torch.Tensor, query: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, and for each row the binary logarithm of its sum of exponentials over that of its highest score, and that score. One number of
    both is the score alone where that is a large one, as masks are."""
    groups = query.size(1) // value.size(1)
    value = torch.repeat_interleave(value, groups, dim=1) if groups != 1 else value
    highest = kept.amax(dim=-1).detach()
    empty = highest == -math.inf
    sums = (kept - torch.where(empty, 0.0, highest)[..., None]).logsumexp(dim=-1)
    logs = torch.where(empty, -math.inf, sums / LN2)
    out = _torch.safe_softmax(kept, dim=-1).to(query.dtype) @ value.to(query.dtype)
    return out, logs, highest


def _in_powers_of_two(logs: torch.Tensor, highest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logarithm of the sum of exponentials, and largest score, of rows as `_weighted` gives them."""
    largest = highest / LN2
    return logs + largest, largest


# --- bodies -----------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """A captured tensor with gradients: its place among those that were captured, its axes, and the body of the changed score's derivative
    by what is read of it."""

    place: int
    axes: str
    factor: str

    @property
    def along(self) -> str:
        """The axis that is left when gradients of changed scores are summed up: queries, keys or their distances."""
        return {"j": "keys", "d": "distances"}.get(self.axes[-1:], "queries")


class Bodies(NamedTuple):
    """score, keep: of two functions. slope: of the first one's derivative by the scores, empty where it gives the scores themselves."""

    score: str
    keep: str
    slope: str
    trained: tuple[Trained, ...] = ()


# --- the operator -----------------------------------------------------------------------------------------------------


ZERO, NAN, NAN_SCORES = "zero", "nan", "nan scores"
"""What a row that sees nothing gives: 0, as in flex_attention; NaN, as a softmax, to which the weights' gradients come but not the scores',
since a number has replaced these; or NaN to both, since something was added to these."""


def attention_of_bodies(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    captured: Sequence[torch.Tensor],
    blocks: Sequence[torch.Tensor],
    sizes: Sequence[int],
    score: str,
    keep: str,
    slope: str,
    trained: Sequence[tuple[int, str, str]],
    scale: float,
    extents: Sequence[int],
    empty: str = ZERO,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `attended` gives, as one operator with one for the gradients of query, key and value, and one for each captured tensor with
    gradients. score, keep, slope, trained: as in Bodies. empty: what a row that sees nothing gives, one of the words above."""
    bodies = Bodies(score, keep, slope, tuple(Trained(*of) for of in trained))
    given = list(blocks), list(sizes), bodies, scale, list(extents), empty
    out, logs, highest = _Attention.apply(query, key, value, given, *captured)
    return out, *_in_powers_of_two(logs, highest)


def operators() -> Any:
    """torch.ops.tracework, in which `attention` and `attention_backward` are."""
    return getattr(torch.ops, NAMESPACE)


def run_body(text: str, scores: torch.Tensor, captured: Sequence[Any], sizes: Sequence[Any]) -> torch.Tensor:
    """A body at all scores."""
    shown = [
        torch.arange(n, device=scores.device).reshape([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)
    ]
    graph = parse_graph(text)
    operands = iter(captured)
    numbers = iter(sizes)
    others = [next(numbers if isinstance(given.spec, SizeSpec) else operands) for given in graph.inputs[5:]]
    return graph.run(scores, *shown, *others)[0]  # type: ignore[no-any-return]


def _repeated(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x if x.size(1) == heads else x.repeat_interleave(heads // x.size(1), 1)


def _scores(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return (q.to(wide) @ _repeated(k, q.size(1)).to(wide).transpose(-2, -1)) * scale


def forward_reference(
    q: Any,
    k: Any,
    v: Any,
    captured: Any,
    blocks: Any,
    sizes: Any,
    score: str,
    keep: str,
    scale: float,
    extents: Any,
    zeroed: bool = True,
) -> tuple[torch.Tensor, ...]:
    """All scores at once."""
    scores = _scores(q, k, scale)
    mask = run_body(keep, scores, captured, sizes)
    kept = torch.where(mask, run_body(score, scores, captured, sizes), -math.inf).expand(scores.shape)
    out, logs, highest = _weighted(kept, q, v)
    if not zeroed:
        out = torch.where((logs == -math.inf)[..., None], math.nan, out)
    return _laid_out(out, q), logs.contiguous(), highest.contiguous()


def _weights(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    logs: Any,
    highest: Any,
    delta: Any,
    captured: Any,
    sizes: Any,
    score: str,
    keep: str,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Scores, mask, weights, and the gradients of the changed scores; a row that saw nothing has none."""
    scores = _scores(q, k, scale)
    mask = run_body(keep, scores, captured, sizes) & (logs != -math.inf)[..., None]
    shifted = run_body(score, scores, captured, sizes) - highest[..., None] - (logs * LN2)[..., None]
    weights = torch.where(mask, shifted, -math.inf).exp()
    wide = scores.dtype
    inner = grad.to(wide) @ _repeated(v, q.size(1)).to(wide).transpose(-2, -1)
    return scores, mask, weights, weights * (inner - delta[..., None])


def backward_reference(
    grad: Any, q: Any, k: Any, v: Any, logs: Any, highest: Any, delta: Any, captured: Any, blocks: Any, sizes: Any,
    score: str, slope: str, keep: str, scale: float, extents: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Gradients of query, key and value from all scores at once."""
    scores, mask, weights, ds = _weights(grad, q, k, v, logs, highest, delta, captured, sizes, score, keep, scale)
    wide, heads = scores.dtype, q.size(1)
    if slope:
        ds = torch.where(mask, ds * run_body(slope, scores, captured, sizes), 0.0)
    ds = ds * scale
    dv = weights.transpose(-2, -1) @ grad.to(wide)
    dk = ds.transpose(-2, -1) @ q.to(wide)
    dq = ds @ _repeated(k, heads).to(wide)
    summed = [x.unflatten(1, (of.size(1), heads // of.size(1))).sum(2) for x, of in ((dk, k), (dv, v))]
    return tuple(_laid_out(x.to(of.dtype), of) for x, of in zip((dq, *summed), (q, k, v)))


def sums_reference(
    grad: Any, q: Any, k: Any, v: Any, logs: Any, highest: Any, delta: Any, captured: Any, blocks: Any, sizes: Any,
    score: str, factor: str, keep: str, scale: float, extents: Any, along: str,
) -> torch.Tensor:  # fmt: skip
    """Gradients of the changed scores times a factor, summed up along one axis, or over the scores of each distance."""
    scores, mask, _, ds = _weights(grad, q, k, v, logs, highest, delta, captured, sizes, score, keep, scale)
    ds = torch.where(mask, ds * run_body(factor, scores, captured, sizes), 0.0)
    if along != "distances":
        return ds.sum(3 if along == "queries" else 2)
    # A row is moved by one place more than the row before it: what has the same distance lies in one column then.
    batch, heads, queries, keys = scores.shape
    rows = torch.nn.functional.pad(ds.flip(3), (0, queries)).flatten(2)
    return rows[:, :, : queries * (queries + keys - 1)].reshape(batch, heads, queries, queries + keys - 1).sum(2)


_OPERANDS = "Tensor[] captured, Tensor[] blocks, SymInt[] sizes, str score, "
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_library.define(
    f"attention(Tensor q, Tensor k, Tensor v, {_OPERANDS}str keep, float scale, int[] extents, bool zeroed=True) "
    "-> (Tensor, Tensor, Tensor)"
)
_library.define(
    f"attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor logs, Tensor highest, Tensor delta, {_OPERANDS}str slope, str keep, float scale, "
    "int[] extents) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    f"attention_sums(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor logs, Tensor highest, Tensor delta, {_OPERANDS}str factor, str keep, float scale, "
    "int[] extents, str along) -> Tensor"
)


def _forward_meta(q: Any, k: Any, v: Any, *others: Any) -> Any:
    rows = q.new_empty(q.shape[:3], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
    return _new_laid_out((*q.shape[:3], v.shape[3]), q), rows, torch.empty_like(rows)


def _backward_meta(grad: Any, q: Any, k: Any, v: Any, *others: Any) -> Any:
    return tuple(_new_laid_out(x.shape, x) for x in (q, k, v))


def _sums_meta(grad: Any, q: Any, k: Any, v: Any, logs: Any, *others: Any) -> Any:
    queries, keys = q.size(2), k.size(2)
    count = {"queries": queries, "keys": keys, "distances": queries + keys - 1}[others[-1]]
    return logs.new_empty((*q.shape[:2], count))


class _Attention(torch.autograd.Function):
    """The operator's gradients: from the output and the sums, nothing from the largest scores. Gradients of gradients are those of the
    gradients written out, which compute all scores."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        q, k, v, (blocks, sizes, bodies, scale, extents, empty), *captured = given
        texts = bodies.score, bodies.keep, scale, extents, empty == ZERO
        out, logs, highest = operators().attention(q, k, v, captured, blocks, sizes, *texts)
        ctx.save_for_backward(q, k, v, out, logs, highest, *captured, *blocks)
        ctx.count, ctx.sizes, ctx.bodies, ctx.facts, ctx.empty = len(captured), sizes, bodies, (scale, extents), empty
        ctx.mark_non_differentiable(highest)
        return out, logs, highest

    @staticmethod
    def backward(ctx: Any, grad: Any, grad_logs: Any, _: Any) -> Any:
        q, k, v, out, logs, highest, *others = ctx.saved_tensors
        captured, blocks = others[: ctx.count], others[ctx.count :]
        delta = (grad.to(logs.dtype) * out.to(logs.dtype)).sum(-1) - grad_logs / LN2
        nothing = None if ctx.empty == ZERO else logs == -math.inf
        delta = delta if nothing is None else torch.where(nothing, 0.0, delta)
        given = grad, q, k, v, logs, highest, delta, captured, blocks, ctx.sizes, ctx.bodies.score
        written_out, ops = torch.is_grad_enabled(), operators()
        compute = backward_reference if written_out else ops.attention_backward
        scale, extents = ctx.facts
        found = compute(*given, ctx.bodies.slope, ctx.bodies.keep, scale, extents)
        found = found if nothing is None else _with_nan(found, logs, ctx.empty)
        gradients: list[Any] = [None] * ctx.count
        for of in ctx.bodies.trained:
            if ctx.needs_input_grad[4 + of.place]:
                total = sums_reference if written_out else ops.attention_sums
                sums = total(*given, of.factor, ctx.bodies.keep, scale, extents, of.along)
                if ctx.empty == NAN_SCORES:
                    sums = torch.where(_sees_nan(logs, k.size(2), of.along), math.nan, sums)
                rest = [dim for dim, axes in enumerate(("b", "h", "ijd")) if not set(axes) & set(of.axes)]
                gradients[of.place] = (sums.sum(rest) if rest else sums).to(captured[of.place].dtype)
        return *found, None, *gradients


def _sees_nan(logs: torch.Tensor, keys: Any, along: str) -> torch.Tensor:
    """Whether a sum of scores' gradients is over one of a row that sees nothing; such a row has as many distances as keys."""
    nothing = logs == -math.inf
    if along == "queries":
        return nothing
    if along == "keys":
        return nothing.any(-1, keepdim=True)
    rows = torch.nn.functional.pad(nothing.to(torch.int64), (0, keys - 1)).cumsum(-1)
    return rows > torch.nn.functional.pad(rows, (keys, 0))[..., : rows.size(-1)]


def _with_nan(found: Sequence[torch.Tensor], logs: torch.Tensor, empty: str) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value, where rows that see nothing are NaN. Weights that are NaN reach all values of their head."""
    dq, dk, dv = found
    of_heads = logs.unflatten(1, (dv.size(1), -1)).amin((2, 3))[..., None, None] == -math.inf
    if empty == NAN_SCORES:
        dq, dk = torch.where(logs[..., None] == -math.inf, math.nan, dq), torch.where(of_heads, math.nan, dk)
    return dq, dk, torch.where(of_heads, math.nan, dv)


for _name, _kernel, _meta in (
    ("attention", forward_reference, _forward_meta),
    ("attention_backward", backward_reference, _backward_meta),
    ("attention_sums", sums_reference, _sums_meta),
):
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    _library.impl(_name, _meta, "Meta")


__all__ = [
    "NAN",
    "NAN_SCORES",
    "ZERO",
    "Bodies",
    "Trained",
    "attended",
    "attention_of_bodies",
    "backward_reference",
    "forward_reference",
    "operators",
    "run_body",
    "sums_reference",
    "with_laid_out_gradient",
]
