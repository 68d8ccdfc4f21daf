"""Which blocks of queries and keys an attention mask in memory hides, shows whole, or both: computed before the kernels, which then
skip the first, and evaluate no mask in the second.

One kernel reads the mask once, though heads that share it would read it each; the classes of its blocks are a small tensor. For
each row of blocks, another lists those of both kinds first, then those that are shown, then those that are hidden.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..ir.body import Instruction, LoopBody, Ref, axes_behind
from ..ir.buffer import BufferLayout
from ..ir.handlers import Recorder, replay
from ..ir.index import Size, contiguous_strides
from ..ir.scalar_ops import handler, ops
from ..ir.score_masks import ADDED, HIDDEN, SHOWN, ScoreMask, read_from_memory, value_alone
from ..product_costs import COPY, FAST, LAUNCH
from .sort import LONGEST, SORTED_ON
from .value import Strided

__all__ = ["MaskBlocks", "MaskOfCall", "mask_blocks"]

EXTENT = 128
"""Queries and keys of a block: of the largest that the kernels have."""
SHARE = 6
"""The blocks may cost one part in so many of the time that the products take at best, since nobody knows how much a mask hides."""


def mask_blocks(
    low: Any, device: torch.device, body: LoopBody, index: Sequence[Size], sizes: Sequence[Size], widths: int
) -> MaskOfCall | None:
    """The blocks of a body's mask, if it has one in memory, a device sorts so many, and it pays.

    index, sizes: the body's variables of (batch, head, query, key), 0 where there is one, and how many there are. widths: elements
    of a key and a value.
    """
    if device.type not in SORTED_ON or not all(isinstance(n, int) for n in sizes):
        return None
    mask = read_from_memory(body, [v for v in index[2:] if not isinstance(v, int)])
    if mask is None or mask.kind == ADDED and _is_bias(body, mask, index[1]):
        return None
    made = MaskBlocks(low, device, body, mask, tuple(index), tuple(n for n in sizes if isinstance(n, int)))
    if not made.pays(widths):
        return None
    key = made.value.text(), made.sizes, mask.kind, mask.negated, mask.number
    return MaskOfCall(low.mask_blocks.setdefault(key, made), mask)


def _is_bias(body: LoopBody, mask: ScoreMask, head: Size) -> bool:
    """Whether what is added is another one for each head: it hides nothing then, as a rule, and each of its blocks would be read."""
    return head in {a.var for a in axes_behind(body, mask.value)}


class MaskOfCall(NamedTuple):
    """What blocks the mask of a call has, which others of the graph may share, and where the call's own body has it."""

    blocks: MaskBlocks
    mask: ScoreMask

    def facts(self) -> tuple[tuple[str, Any], ...]:
        """What a kernel is told of what the blocks give."""
        return ("mask", self.mask), ("extents", (EXTENT, EXTENT)), ("blocks", 2), ("whole", self.blocks.whole)


class MaskBlocks:
    """Of one mask; what is computed for one direction is there for all kernels that walk in it."""

    def __init__(
        self, low: Any, device: torch.device, body: LoopBody, mask: ScoreMask, index: tuple[Size, ...], sizes: tuple[int, ...]
    ) -> None:
        self.low, self.device, self.mask, self.index, self.sizes = low, device, mask, index, sizes
        self.value = value_alone(body, mask.value)
        varies = {a.var for a in axes_behind(body, mask.value)}
        self.varies = tuple(v in varies for v in index)
        self.blocks = (*sizes[:2], *(-(-n // EXTENT) for n in sizes[2:]))
        self.whole = EXTENT ** sum(self.varies[2:])
        """How many elements of the mask a block has."""
        self.counts: Strided | None = None
        self.orders: dict[int, Strided] = {}

    def pays(self, widths: int) -> bool:
        """Whether the mask has blocks to tell apart, no row more than a kernel sorts, and takes little time to read beside what the
        products take."""
        if max(self.blocks[2:]) > LONGEST[4] or any(v and n == 1 for v, n in zip(self.varies[2:], self.blocks[2:], strict=True)):
            return False
        elements = math.prod(n for n, varies in zip(self.sizes, self.varies, strict=True) if varies)
        itemsize = max(self.low.buffers[i.args[0]].layout.dtype.itemsize for i in self.value.loads())
        costs = COPY * elements * itemsize + 2 * LAUNCH
        return costs * SHARE <= math.prod(self.sizes) * widths * FAST["cuda", 2]

    def along(self, dim: int) -> tuple[Strided, Strided]:
        """For each block of queries and keys, what its elements count for together; and for each row of blocks along one of these
        dims, their places in the order of their classes. Both have the dims of the scores."""
        if self.counts is None:
            self.counts = self._counted()
        if dim not in self.orders:
            self.orders[dim] = self._ordered(dim)
        return self.counts, self.orders[dim]

    def _strided(self, dtype: torch.dtype, varies: Sequence[bool]) -> tuple[Any, Strided]:
        """A new buffer with one element where a dim does not vary, and a window on it that has all."""
        own = tuple(n if v else 1 for n, v in zip(self.blocks, varies, strict=True))
        buffer = self.low.new_buffer(BufferLayout.dense(dtype, self.device, own))
        strides = [t if v else 0 for t, v in zip(contiguous_strides(own), varies, strict=True)]
        return buffer, self.low.whole(buffer).window(self.blocks, strides, 0)

    def _counted(self) -> Strided:
        buffer, counts = self._strided(torch.int32, self.varies)
        dims = [d for d in (2, 3) if self.varies[d]]

        def element(at: list[Size], inside: list[Size]) -> Any:
            place = dict(zip(dims, inside, strict=True))
            full = [EXTENT * n + place[d] if d in place else n for d, n in enumerate(at)]
            outside = [d for d in dims if self.sizes[d] % EXTENT]
            if not outside:
                return self._class_at(full)
            within = [ops.lt(ops.index_expr(full[d], torch.int64), ops.constant(self.sizes[d], torch.int64)) for d in outside]
            condition = within[0] if len(within) == 1 else ops.logical_and(*within)
            return ops.masked(condition, lambda: self._class_at(full), HIDDEN + SHOWN)

        self.low.reduction_node(buffer, "sum", [EXTENT] * len(dims), element)
        return counts

    def _class_at(self, at: Sequence[Size]) -> Any:
        """What one element of the mask counts for."""
        mask, value = self.mask, self._value_at(at)
        hidden, shown = (ops.constant(n, torch.int32) for n in (HIDDEN, SHOWN))
        if mask.kind != ADDED:
            return ops.where(value, *((hidden, shown) if mask.negated else (shown, hidden)))
        low, none = ops.constant(mask.number, torch.float32), ops.constant(0.0, torch.float32)
        rest = ops.where(ops.eq(value, none), shown, ops.constant(0, torch.int32))
        return ops.where(ops.le(value, low), hidden, rest)

    def _value_at(self, at: Sequence[Size]) -> Any:
        given: list[Any] = []

        def kept(into: Recorder, i: Instruction) -> bool:
            given.append(i.args[1])
            return i.op == "define"

        def load(into: Recorder, buffer: str, place: Size, dtype: torch.dtype) -> Ref:
            return into.load(buffer, place, dtype)  # within the mask that is in force

        own = {v: n for v, n in zip(self.index, at, strict=True) if not isinstance(v, int)}
        replay(self.value, handler(), own, load, kept)
        return given[0]

    def _ordered(self, dim: int) -> Strided:
        counts, size = self.counts, self.blocks[dim]
        assert counts is not None
        if not self.varies[dim]:  # all of a row are alike
            buffer, order = self._strided(torch.int32, [d == dim for d in range(4)])
            self.low.pointwise_node(buffer, lambda at: ops.index_expr(at[dim], torch.int32))
            return order
        buffer, order = self._strided(torch.int32, self.varies)

        def kind(at: list[Size]) -> Any:
            count = counts.load(at)
            one, two, none, of_shown, all_shown, all_hidden = (
                ops.constant(n, torch.int32) for n in (1, 2, 0, HIDDEN - 1, self.whole, HIDDEN * self.whole)
            )
            shown = ops.eq(ops.bitwise_and(count, of_shown), all_shown)
            hidden = ops.ge(count, all_hidden)
            return ops.where(hidden, two, ops.where(shown, one, none))

        self.low.sort_node([None, buffer], dim, size, kind, False)
        return order
