"""Finds attention that a program wrote out, by structure: a product, what is done to its elements one by one, a softmax over the last axis
in any spelling, and a product.

What is done to the scores are steps: they are times a number, something is added, a number takes the place of some, or they go through tanh.
Back ends find it in a graph of prims, and whoever makes a backward in the forward's part of the graph, so that both know the same programs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .op import PrimValue, prims
from .passes.edits import writes
from .symbols.expr import Size
from .symbols.layout import product, same, same_all

ORDERED = frozenset({prims.reshape, prims.unsqueeze, prims.squeeze, prims.clone, prims.contiguous})
"""Calls that give the same elements in the same order."""
COMPUTED = torch.float32
"""What scores and weights may be computed in, beside the dtype of the operands."""


@dataclass(frozen=True)
class Step:
    """What is done to each score. kind: "scale" by a number, "add" a tensor, "fill" with a number where a tensor is false, or "tanh";
    negated: where it is true, or subtracted; sizes, dtype: of the scores then."""

    kind: str
    sizes: tuple[Size, ...]
    dtype: torch.dtype
    number: float = 1.0
    tensor: Any = None
    negated: bool = False


@dataclass(frozen=True)
class WrittenAttention:
    """Operands of the two products (lots, queries, width), (lots, width, keys), (lots, keys, width), where a lot is a head of an item of
    the batch, and what is done to the scores in between.

    sizes: (batch, heads, queries, keys). zeroed: a row of scores that are all -inf becomes 0, and not NaN. inside: the nodes in between.
    """

    query: Any
    key: Any
    value: Any
    steps: tuple[Step, ...]
    sizes: tuple[Size, Size, Size, Size]
    zeroed: bool
    inside: frozenset[Any]

    @property
    def has_one_mask(self) -> bool:
        """Whether the steps are one factor and one mask that is added: a number that replaces scores is known by its value, so that it is the
        only one and nothing else is added."""
        finite = [n for n, s in enumerate(self.steps) if s.kind == "fill" and s.number != -math.inf]
        if any(s.kind == "tanh" for s in self.steps):
            return False
        is_last = finite == [len(self.steps) - 1] and all(s.kind == "scale" for s in self.steps[:-1])
        return not finite or is_last and self.steps[-1].number < 0

    @property
    def fill(self) -> float | None:
        """The number that replaces scores, where it is finite, as their dtype has it."""
        numbers = [torch.tensor(s.number, dtype=s.dtype).item() for s in self.steps if s.kind == "fill"]
        return next((n for n in numbers if n != -math.inf), None)


def written_attention(last: Any) -> WrittenAttention | None:
    """What a node computes if it is the last product of attention that is written out, and nobody else reads what is computed on the way."""
    if last.target is not prims.bmm:
        return None
    inside: set[Any] = set()
    dtype = last.meta["spec"].dtype
    weights = _peeled(last.args[0], inside, dtype)
    found = _softmax(weights, inside)
    if found is None:
        return None
    scores, zeroed = found
    sizes = _four(scores.meta["spec"].sizes)
    reached = _scores(scores, dtype)
    if sizes is None or reached is None:
        return None
    first, operands, steps, below = reached
    inside |= below
    lots, queries, keys = first.meta["spec"].sizes
    whole = (product(sizes[:2]), *sizes[2:])
    if not same_all((lots, queries, keys), whole) or not _are_understood(steps, sizes):
        return None
    if not same_all(
        last.args[0].meta["spec"].sizes, whole
    ):  # weights of several heads for one value, or of one query for its own
        return None
    if any(user not in inside and user is not last for node in inside for user in node.users) or _is_written_between(first, last):
        return None
    return WrittenAttention(*operands, last.args[1], tuple(steps), sizes, zeroed, frozenset(inside))


def value_of(node: Any) -> PrimValue:
    """What a node computes, as prims take it."""
    return PrimValue(node.meta["spec"], node)


def _four(sizes: Sequence[Size]) -> tuple[Size, Size, Size, Size] | None:
    """Sizes of scores as (batch, heads, queries, keys)."""
    if len(sizes) < 3:
        return None
    *lots, queries, keys = sizes
    batch: Size = lots[0] if len(lots) > 1 else 1
    return batch, product(lots[1:] if len(lots) > 1 else lots), queries, keys


def _peeled(node: Any, inside: set[Any], dtype: torch.dtype) -> Any:
    """What a node gives the elements of, in the same order, maybe in another dtype."""
    while node.target in ORDERED or _keeps_order(node) or _only_widens(node, dtype):
        inside.add(node)
        node = node.args[0]
    return node


def _keeps_order(node: Any) -> bool:
    if node.target is not prims.permute:
        return False
    moved = [d for d in node.args[1] if not same(node.args[0].meta["spec"].sizes[d], 1)]
    return moved == sorted(moved)


def _only_widens(node: Any, dtype: torch.dtype) -> bool:
    return node.target is prims.convert and {node.meta["spec"].dtype, node.args[0].meta["spec"].dtype} <= {COMPUTED, dtype}


def _softmax(node: Any, inside: set[Any]) -> tuple[Any, bool] | None:
    """(scores, whether a row of -inf is 0) of a softmax over the last axis."""
    zeroed = False
    if node.target is prims.where and node.args[1] == 0 and node.args[0].target is prims.all:
        inside |= {node, node.args[0], node.args[0].args[0]}
        hidden, node, zeroed = node.args[0], node.args[2], True
    if node.target is not prims.div or not all(hasattr(a, "op") for a in node.args):
        return None
    exps, total = node.args
    if exps.target is not prims.exp or exps.args[0].target is not prims.sub or total.target is not prims.sum:
        return None
    shifted = exps.args[0]
    scores, highest = shifted.args
    if not all(hasattr(a, "op") for a in (scores, highest)) or highest.target is not prims.amax:
        return None
    axis = scores.meta["spec"].ndim - 1
    if (
        total.args[0] is not exps
        or highest.args[0] is not scores
        or not _is_of_rows(total, axis)
        or not _is_of_rows(highest, axis)
    ):
        return None
    if zeroed and not (
        hidden.args[0].target is prims.eq and hidden.args[0].args == (scores, -math.inf) and _is_of_rows(hidden, axis)
    ):
        return None
    inside |= {node, exps, total, shifted, highest}
    return scores, zeroed


def _is_of_rows(node: Any, axis: int) -> bool:
    """Whether a reduction is over the last axis, which stays with size 1."""
    dims, keep = node.args[1:3]
    return tuple(dims) == (axis,) and bool(keep)


def _scores(node: Any, dtype: torch.dtype) -> tuple[Any, tuple[Any, Any], list[Step], set[Any]] | None:
    """(first product, its operands, what is done to its elements to make `node`, the nodes in between); None where there is no such product."""
    inside: set[Any] = set()
    node = _peeled(node, inside, dtype)
    inside.add(node)
    if node.target in (prims.bmm, prims.baddbmm):
        if node.meta["spec"].dtype != dtype or (made := _product(node)) is None:
            return None
        operands, steps = made
        return node, operands, steps, inside
    for of, step in _steps(node):
        if same_all(of.meta["spec"].sizes, node.meta["spec"].sizes) and (found := _scores(of, dtype)) is not None:
            first, operands, steps, below = found
            return first, operands, [*steps, step], inside | below
    return None


def _product(node: Any) -> tuple[tuple[Any, Any], list[Step]] | None:
    """(operands, steps) of a product that may add something to its elements."""
    if node.target is prims.bmm:
        return (node.args[0], node.args[1]), []
    bias, a, b, beta, alpha = [*node.args, 1, 1][:5]
    if not all(isinstance(n, (int, float)) for n in (beta, alpha)) or beta not in (0, 1):
        return None
    at = node.meta["spec"].sizes, node.meta["spec"].dtype
    added = [Step("add", *at, tensor=bias)] if beta else []
    return (a, b), [*([] if alpha == 1 else [Step("scale", *at, float(alpha))]), *added]


def _steps(node: Any) -> list[tuple[Any, Step]]:
    """The ways to read a call as something that is done to the elements of one of its operands."""
    if node.op != "call_function" or "spec" not in node.meta or node.kwargs:
        return []
    spec, args = node.meta["spec"], node.args
    at = getattr(spec, "sizes", ()), getattr(spec, "dtype", None)
    if node.target in (prims.mul, prims.add) and len(args) == 2:
        pairs = [(a, b) for a, b in (args, args[::-1]) if hasattr(a, "op")]
        if node.target is prims.mul:
            return [(a, Step("scale", *at, number)) for a, b in pairs if (number := number_everywhere(b)) is not None]
        return [(a, Step("add", *at, tensor=b)) for a, b in pairs if hasattr(b, "op")]
    if node.target is prims.div and len(args) == 2 and hasattr(args[0], "op") and (number := number_everywhere(args[1])):
        return [(args[0], Step("scale", *at, 1 / number))]
    if node.target is prims.sub and len(args) == 2 and all(hasattr(a, "op") for a in args):
        return [(args[0], Step("add", *at, tensor=args[1], negated=True))]
    if node.target is prims.tanh:
        return [(args[0], Step("tanh", *at))]
    if node.target is prims.where:
        chosen = enumerate(args[1:])
        pairs_of = [(a, number_everywhere(args[2 - n]), n == 1) for n, a in chosen if hasattr(a, "op")]
        return [(a, Step("fill", *at, number, args[0], negated)) for a, number, negated in pairs_of if number is not None]
    return []


def number_everywhere(arg: Any) -> float | None:
    """What a constant is for all elements, as its dtype has it; None for what is no constant."""
    if isinstance(arg, (int, float)):
        return float(arg)
    target = getattr(arg, "target", None)
    if target not in (prims.expand, prims.reshape, prims.convert, prims.full, prims.scalar_tensor):
        return None
    number = number_everywhere(arg.args[1 if target is prims.full else 0])
    return None if number is None else float(torch.tensor(number, dtype=torch.float64).to(arg.meta["spec"].dtype).item())


def _are_understood(steps: Sequence[Step], sizes: Sequence[Size]) -> bool:
    """Whether what is -inf stays so, and each tensor is broadcast to scores of four axes."""
    hidden = next((n for n, s in enumerate(steps) if s.kind == "fill" and s.number == -math.inf), len(steps))
    for step in steps[hidden:]:
        if (
            step.kind == "tanh"
            or step.kind == "scale"
            and not step.number > 0
            or step.kind == "fill"
            and step.number != -math.inf
        ):
            return False
    return all(as_four(s.tensor.meta["spec"].sizes, s.sizes, sizes) is not None for s in steps if s.tensor is not None)


def _is_written_between(first: Any, last: Any) -> bool:
    """Whether memory is written after the first product, where what it reads is read no more."""
    node = first
    while node is not last:
        if node.op == "call_function" and writes(node):
            return True
        node = node.next
    return False


def as_four(own: Sequence[Size], of: Sequence[Size], sizes: Sequence[Size]) -> list[tuple[Size, ...]] | None:
    """Sizes that a tensor of `own` sizes, which is broadcast to `of`, is expanded and reshaped to, so that it is broadcast to `sizes` of
    four axes; None where the last two axes are others."""
    if same_all(of, sizes):
        return []
    if not same_all(of[-2:], sizes[2:]):
        return None
    own, lots = (*[1] * (len(of) - len(own)), *own), tuple(of[:-2])
    splits = (n for n in range(len(lots) + 1) if same_all((product(lots[:n]), product(lots[n:])), sizes[:2]))
    split = next(splits, None)
    if split is None:  # heads are no dims of their own
        of_lots = [(lots, own[:-2])]
    else:
        of_lots = [(lots[:split], own[:split]), (lots[split:], own[split:-2])]
    is_one = [all(same(n, 1) for n in given) for _, given in of_lots]
    expanded = [given if one else whole for (whole, given), one in zip(of_lots, is_one, strict=True)]
    found = [1 if one else n for one, n in zip(is_one if split is not None else is_one * 2, sizes[:2], strict=True)]
    return [(*itertools.chain(*expanded), *own[-2:]), (*found, *own[-2:])]


def tensor_of(step: Step, found: WrittenAttention) -> PrimValue:
    """The tensor of a step, built by prims so that it is broadcast to scores of four axes."""
    given = value_of(step.tensor)
    for n, sizes in enumerate(as_four(given.sizes, step.sizes, found.sizes) or ()):
        given = prims.reshape(given, sizes) if n else prims.expand(given, sizes)
    return given


def parts_of(step: Step) -> Iterator[Step]:
    """A step that adds a sum, as steps that add its parts."""
    if step.kind == "add" and step.tensor.target is prims.add and all(hasattr(x, "op") for x in step.tensor.args):
        for tensor in step.tensor.args:
            yield from parts_of(replace(step, tensor=tensor))
    else:
        yield step


def smaller_parts_of(step: Step) -> tuple[Step, ...]:
    """The same where the parts together have fewer elements than the sum, as a bias of heads and a mask of a batch have."""
    parts = tuple(parts_of(step))
    counts = [product(part.tensor.meta["spec"].sizes) for part in (*parts, step) if part.tensor is not None]
    *of_parts, whole = counts or [0]
    numbers = [n for n in of_parts if isinstance(n, int)]
    fits = len(numbers) == len(parts) and isinstance(whole, int) and sum(numbers) < whole
    return parts if fits else (step,)


def mask_of(found: WrittenAttention) -> tuple[float, PrimValue | None]:
    """(factor, mask of four axes that is added after it) of what is done to the scores, built by prims; where it has one mask."""
    factor, mask = 1.0, None
    for step in found.steps:
        if step.kind == "scale":
            factor *= step.number
            mask = None if mask is None else prims.mul(mask, step.number)
            continue
        given = tensor_of(step, found)
        if mask is not None and mask.dtype != step.dtype:
            mask = prims.convert(mask, step.dtype)
        if step.kind == "add":
            given = prims.mul(given, -1.0) if step.negated else given
            mask = given if mask is None else prims.add(mask, given)
        else:
            kept = prims.full((), 0.0, step.dtype, given.device) if mask is None else mask
            mask = prims.where(given, *((step.number, kept) if step.negated else (kept, step.number)))
    return factor, mask


def without_factor(node: Any) -> tuple[PrimValue, float]:
    """What a node is a number times, as far as only views lie in between, and the number."""
    if node.target is prims.mul and isinstance(node.args[1], (int, float)):
        return value_of(node.args[0]), float(node.args[1])
    if node.target in ORDERED or node.target in (prims.permute, prims.expand):
        inner, factor = without_factor(node.args[0])
        if factor != 1.0:
            return node.target(inner, *node.args[1:]), factor
    return value_of(node), 1.0


def operands_of(found: WrittenAttention, width: Size) -> tuple[PrimValue, PrimValue, PrimValue, float]:
    """(query, key, value) of (batch, heads, length, width), built by prims, and the number that the scores are times. width: of the values."""
    batch, heads, queries, keys = found.sizes
    (q, q_factor), (k, k_factor) = without_factor(found.query), without_factor(found.key)
    q = prims.reshape(q, (batch, heads, queries, q.sizes[-1]))
    k = prims.permute(prims.reshape(k, (batch, heads, k.sizes[-2], keys)), (0, 1, 3, 2))
    return q, k, prims.reshape(value_of(found.value), (batch, heads, keys, width)), q_factor * k_factor


FEW_QUERIES = 8
"""Up to so many, another kernel is made for attention, in which one program walks over all keys."""
LEAST_BYTES = 1 << 26
"""Of the scores, from which on they are moved through memory."""
MOST_WIDTH = 128
DTYPES = frozenset({torch.bfloat16, torch.float16})


def are_moved(count: int, dtype: torch.dtype) -> bool:
    """Whether so many scores, for products of this dtype, are moved through memory."""
    return bool(dtype in DTYPES and count * dtype.itemsize >= LEAST_BYTES)


def pays(found: WrittenAttention) -> bool:
    """Whether a kernel that holds no scores is quicker than the products: only where the scores take more memory than caches hold. There moving
    them takes longer than all of the kernel, whose products are the same."""
    q, k, v = (n.meta["spec"] for n in (found.query, found.key, found.value))
    numbers = [n for n in (*found.sizes, q.sizes[2], v.sizes[2]) if isinstance(n, int) and n > 0]
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype or len(numbers) != 6:
        return False
    return numbers[2] > FEW_QUERIES and max(numbers[4:]) <= MOST_WIDTH and are_moved(math.prod(numbers[:4]), q.dtype)


__all__ = [
    "DTYPES",
    "FEW_QUERIES",
    "MOST_WIDTH",
    "Step",
    "WrittenAttention",
    "are_moved",
    "as_four",
    "mask_of",
    "number_everywhere",
    "operands_of",
    "parts_of",
    "pays",
    "smaller_parts_of",
    "tensor_of",
    "value_of",
    "without_factor",
    "written_attention",
]
