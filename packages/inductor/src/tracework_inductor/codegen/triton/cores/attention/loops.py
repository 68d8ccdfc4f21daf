"""Which blocks a program of attention's kernels visits, and in which of them the mask is evaluated: by bounds, by the lists of a
BlockMask, or by what the blocks of a mask in memory were found to be (lowering/mask_blocks.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....ir.body import Ref
from .....ir.buffer import BufferView
from .....ir.cores import power_of_two
from .....ir.index import constant_size
from .....ir.score_masks import FILLED, HIDDEN, KEPT, ScoreMask
from ....reach import Reach, Words, reach_of
from ...body import BodyWriter
from .body import ScoredAttention
from .text import divides

__all__ = ["LoopedAttention", "Step"]

UNSEEN = 256.0
"""How far a score is below the highest whose exponential is 0, with what float32 rounds such a sum by."""


WORDS = Words("tl.maximum", "tl.minimum", "tl.where")


Step = Callable[[BodyWriter, bool, bool], None]
"""Writes one step of a loop, in which the mask is evaluated if the first says so, and rows may be outside of the tensor if the
second does."""


class LoopedAttention(ScoredAttention):
    """A kernel whose programs walk over what their blocks see."""

    def _loops(self, writer: BodyWriter, step: Step) -> None:
        """Writes the loops over what the block sees."""
        loop, block = self.index[5 - self.outer], self.index[self.outer]
        limit = "keys" if self.outer == 2 else "queries"
        values: dict[int, Any] = {}

        def scalar(ref: Ref) -> str:
            return writer.run_one(self.body, ref.position, values).text

        def reach_by(condition: Ref, negated: bool) -> Reach:
            return reach_of(self.body, condition, loop, block, ("x_first", "x_last"), limit, scalar, WORDS, negated)

        reach = reach_by(*((self.defined["keep"], False) if self.fill is None else (self.fill.value, self.fill.negated)))
        if self.mask is not None and self._blocks_fit():
            self._by_classes(writer, step)
            return
        self.mask = None
        if self.fill is not None and not reach.known:
            self.fill, reach = None, reach_by(self.defined["keep"], False)
        if not reach.known and self.blocks and self._blocks_fit():
            self._by_blocks(writer, step)
        else:
            self._by_bounds(writer, reach, limit, step)

    def _listed(self, places: str, begin: str, end: str, per: int, extent: int, stride: str, last: str) -> tuple[str, list[str]]:
        """What stands before a loop over the steps of listed blocks, from the one at `begin` to that before `end`, and its lines up to
        the step; `last`: where the list ends.

        Each step has read the next block's place: the copies of its keys are asked for as early as where places are computed."""
        start = "0" if begin == "0" else f"({begin}) * {per}"
        start = f"{start} + part" if self.parts > 1 else start
        at = "{0}" if stride == "1" else f"{{0}} * {stride}"
        return f"place = tl.load({places} + {at.format(f'tl.minimum(({start}) // {per}, {last})')})", [
            f"for n in range({start}, ({end}) * {per}, {self.parts}):",
            f"first = place * {extent} + n % {per} * RBLOCK",
            f"place = tl.load({places} + {at.format(f'tl.minimum((n + {self.parts}) // {per}, {last})')})",
        ]

    def _loop(self, writer: BodyWriter, head: Sequence[str], step: Step, masked: bool, border: bool) -> None:
        """One loop: `head` its first line and what stands before the step."""
        outside, writer.lines = writer.lines, []
        writer.tile = self._tile_masks(border)
        writer.enter_loop(outside)
        limit = "keys" if self.outer == 2 else "queries"
        writer.lines += head[1:]
        writer.lines.append("r = first + tl.arange(0, RBLOCK)")
        if border:
            writer.lines.append(f"r_in = (r < {limit})[None, :]")
        step(writer, masked, border)
        writer.leave_loop()
        inside, writer.lines = writer.lines, outside
        writer.lines += [head[0], *(f"    {line}" for line in inside)]

    def _by_bounds(self, writer: BodyWriter, reach: Reach, limit: str, step: Step) -> None:
        rblock = self.config.constants["RBLOCK"]
        length = self.lengths[3 - self.outer]
        whole = divides(length, rblock)
        lines = writer.lines
        low, high = reach.possible.low, reach.possible.high
        lines.append(f"begin = {'0' if low is None else f'(tl.maximum({low}, 0) // {rblock} * {rblock}).to(tl.int32)'}")
        lines.append(f"end = {limit if high is None else f'tl.minimum({high}, {limit}).to(tl.int32)'}")
        if reach.certain is None:
            self._loop(writer, [self._range("begin", "end")], step, True, not whole)
            self._rest(writer, reach, limit, step)
            return
        low, high = reach.certain.low, reach.certain.high
        inner = f"((tl.maximum({low}, 0) + {rblock - 1}) // {rblock} * {rblock}).to(tl.int32)"
        lines.append(f"sure = {'0' if low is None else inner}")
        last = limit if high is None else f"tl.maximum(tl.minimum({high}, {limit}), 0)"
        end = f"({last} // {rblock} * {rblock})"
        lines.append("unsure = " + (end if low is None and high is None else f"tl.maximum({end}, sure).to(tl.int32)"))
        if low is not None:
            self._loop(writer, [self._range("begin", "tl.minimum(sure, end)")], step, True, not whole)
        self._loop(writer, [self._range("sure", "unsure")], step, False, False)
        if high is not None or not whole:
            masked = reach.possible.high is not None or high is not None
            self._loop(writer, [self._range("unsure", "end")], step, masked, not whole)
        self._rest(writer, reach, limit, step)

    def _rest(self, writer: BodyWriter, reach: Reach, limit: str, step: Step) -> None:
        """Writes the loops over what only has the number that the body puts in the place of scores. It has weight in a row whose
        highest score is no more: one of which nothing else is seen."""
        low, high = reach.possible.low, reach.possible.high
        if self.fill is None or (low is None and high is None) or not (lines := self._unseen(f"{_least_seen(self.fill)!r}")):
            return
        rblock = self.config.constants["RBLOCK"]
        border = not divides(self.lengths[3 - self.outer], rblock)
        writer.lines += lines
        if low is not None:
            self._loop(writer, [self._range("0", f"tl.minimum(begin, {limit}) * unseen")], step, True, border)
        if high is not None:
            writer.lines.append(f"behind = begin + (tl.maximum(end - begin, 0) + {rblock - 1}) // {rblock} * {rblock}")
            self._loop(writer, [self._range("behind", f"behind + ({limit} - behind) * unseen")], step, True, border)

    def _unseen(self, least: str) -> list[str]:
        """Lines that make `unseen` 1 where a row's highest score is not above a number, and else 0; none where the loops sum up
        nothing that depends on scores which a number has replaced."""
        return []

    def _range(self, begin: str, end: str) -> str:
        """The first line of a loop over the steps of this part."""
        if self.parts == 1:
            return f"for first in range({begin}, {end}, RBLOCK):"
        return f"for first in range({begin} + part * RBLOCK, {end}, {self.parts} * RBLOCK):"

    # a mask in memory, by the classes of its blocks

    def _by_classes(self, writer: BodyWriter, step: Step) -> None:
        """Blocks that the mask hides in part, in which it is evaluated, then those that it does not hide; then those that it hides,
        if something is to be seen of them. The two tensors say what elements of a block count for, and list blocks in this
        order."""
        counts, order = self.blocks
        mask = self.mask
        assert mask is not None
        walked, rblock = 5 - self.outer, self.config.constants["RBLOCK"]
        own, other = self.extents[self.outer - 2], self.extents[3 - self.outer]
        number, step_of = constant_size(counts.sizes[walked]), self.text(order.strides[walked])
        places = dict(zip((0, 1, self.outer), ("batch", "head", f"x_first // {own}"), strict=True))

        def row(view: BufferView) -> str:
            terms = [self.times(text, view.strides[d], view.sizes[d]) for d, text in places.items()]
            return " + ".join([self._start(view), *filter(None, terms)])

        lanes = power_of_two(number)
        within = "" if lanes == number else f", lanes < {number}, other={self.whole * HIDDEN}"
        writer.lines += [
            f"lanes = tl.arange(0, {lanes})",
            f"counts = tl.load({row(counts)} + lanes * {self.text(counts.strides[walked])}{within})",
            f"full = tl.sum(((counts & {HIDDEN - 1}) == {self.whole}).to(tl.int32), 0)",
            f"seen = tl.sum((counts < {self.whole * HIDDEN}).to(tl.int32), 0)",
            f"order = {row(order)}",
        ]
        per = other // rblock
        border = not divides(self.lengths[3 - self.outer], other)  # all steps of a block are taken

        def loop(begin: str, end: str, masked: bool) -> None:
            before, head = self._listed("order", begin, end, per, other, step_of, f"{number - 1}")
            writer.lines.append(before)
            self._loop(writer, head, step, masked, border)

        loop("0", "seen - full", True)
        loop("seen - full", "seen", False)
        if mask.kind != KEPT and (lines := self._unseen(f"{_least_seen(mask)!r}")):
            writer.lines += [*lines, f"hidden = ({number} - seen) * unseen"]
            loop("seen", "seen + hidden", True)

    # a BlockMask

    def _blocks_fit(self) -> bool:
        own, other = (self.extents[self.outer - 2], self.extents[3 - self.outer])
        return own % self.config.constants["XBLOCK"] == 0 and other % self.config.constants["RBLOCK"] == 0

    def _by_blocks(self, writer: BodyWriter, step: Step) -> None:
        """Partial blocks under the mask, then full ones. The first four tensors count and list blocks of keys, the other four of
        queries."""
        rblock = self.config.constants["RBLOCK"]
        own, other = self.extents[self.outer - 2], self.extents[3 - self.outer]
        border = not divides(self.lengths[3 - self.outer], other)  # all steps of a block are taken
        chosen = self.blocks[:4] if self.outer == 2 else self.blocks[4:]
        for n, masked in ((0, True), (2, False)):
            count, listed = chosen[n : n + 2]
            places = [f"x_first // {own}"]
            at = [self.times(t, s, z) for t, s, z in zip(("batch", "head", *places), count.strides, count.sizes)]
            row = [self.times(t, s, z) for t, s, z in zip(("batch", "head", *places), listed.strides, listed.sizes)]
            name = "partial" if masked else "full"
            writer.lines.append(f"{name} = tl.load(" + " + ".join([self._start(count), *filter(None, at)]) + ")")
            writer.lines.append(f"{name}_at = " + " + ".join([self._start(listed), *filter(None, row)]))
            per = other // rblock
            step_of = self.text(listed.strides[3])
            before, head = self._listed(f"{name}_at", "0", name, per, other, step_of, f"tl.maximum({name} - 1, 0)")
            writer.lines.append(before)
            self._loop(writer, head, step, masked, border)


def _least_seen(mask: ScoreMask) -> float:
    """A score above which a row has one beside which hidden ones vanish."""
    return mask.number + UNSEEN if mask.kind == FILLED else mask.number / 16
