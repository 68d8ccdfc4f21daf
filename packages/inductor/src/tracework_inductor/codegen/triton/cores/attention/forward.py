"""Attention's results: each program those of a block of queries, or the share that a part of the keys has in them."""

from __future__ import annotations

from .....ir.index import constant_product, constant_size
from ...body import BodyWriter
from ...config import MULTIPROCESSORS
from .config import TABLES
from .loops import LoopedAttention
from .text import LOWEST, also, lane_mask, lanes_mask, length_line, tile

__all__ = ["Forward"]

LEAST_STEPS = 8
"""Over keys, of a part of them, where few programs share the device."""


class Forward(LoopedAttention):
    """Output, binary logarithms of sums, and largest scores of a block of queries."""

    tables = TABLES["forward"]
    names = ("q", "k", "v", "out", "logs", "highest")
    by_descriptors = True

    def _write(self) -> None:
        self._program()
        self._widths()
        group = "head" if self.groups == 1 else f"head // {self.groups}"
        q, k, v, out = (self._rows(n, h) for n, h in (("q", "head"), ("k", f"({group})"), ("v", f"({group})"), ("out", "head")))
        width = tile(constant_size(self.views["v"].sizes[3]))
        self.lines += [
            "row = x[:, None]",
            "x_wide = x.to(tl.int64)",
            f"q = {self._load(q, 'x_wide', 'd', self.x_mask)}",
            f"highest = tl.full([XBLOCK], {LOWEST}, tl.float32)",
            "total = tl.zeros([XBLOCK], tl.float32)",
            f"sums = tl.zeros([XBLOCK, {width}], tl.float32)",
            *self._described_keys(k, v),
        ]
        precision = self.precision()

        def step(writer: BodyWriter, masked: bool, border: bool) -> None:
            writer.lines += self._scores_of_keys(k, v, border)
            self._changed(writer, masked, border)
            writer.lines += [
                "above = tl.maximum(highest, tl.max(c, 1))",
                f"base = tl.where(above == {LOWEST}, 0.0, above)",
                f"p = {self._exponentials('c', 'base[:, None]')}",
                f"kept = {self._exponentials('highest', 'base')}",
                "total = total * kept + tl.sum(p, 1)",
                f"sums = sums * kept[:, None] + tl.dot(p.to(v.dtype), v{precision})",
                "highest = above",
            ]

        self._loops(self._writer(), step)
        rows = "x < queries" if self.x_mask else None
        if self.parts > 1:
            self.lines += [
                f"slot = (pair.to(tl.int64) * queries + x) * {self.parts} + part",
                f"tl.store(ws0 + (slot * {width})[:, None] + e[None, :], sums{also(self.x_mask)})",
                f"tl.store(ws1 + slot, highest{also(rows)})",
                f"tl.store(ws2 + slot, total{also(rows)})",
            ]
            return
        self.lines += [
            *self._filled(),
            f"tl.store({self._address(out, 'x_wide', 'e')}, sums / total[:, None]{also(self.x_mask, lanes_mask('e', out.width))})",
            *self._rows_stored(rows),
        ]

    def _unseen(self, least: str) -> list[str]:
        is_seen = f"highest > {least}" if self.x_mask is None else f"(highest > {least}) | (x >= queries)"
        return [f"unseen = tl.max(tl.where({is_seen}, 0, 1), 0)"]

    def _rows_stored(self, rows: str | None) -> list[str]:
        """The lines that store what is kept of a row: two numbers, since one of both is the highest score alone where that is a large one."""
        highest = "highest" if self.unit == 1.0 else f"highest * {self.unit!r}"
        return [
            f"tl.store({self._place_of_row('logs', 'head', 'x')}, logs{also(rows)})",
            f"tl.store({self._place_of_row('highest', 'head', 'x')}, {highest}{also(rows)})",
        ]

    def _filled(self) -> list[str]:
        """The lines that take the sums' logarithms, and make a row that sees nothing 0, if it is to be."""
        logs = "logs = tl.log2(total)"
        return [logs, "total = tl.where(total == 0.0, 1.0, total)"] if dict(self.kernel.node.facts)["zeroed"] else [logs]

    def _parts(self) -> int:
        q = self.views["q"]
        steps = -(-constant_product([self.lengths[1]]) // (LEAST_STEPS * self.config.constants["RBLOCK"]))
        blocks = -(-constant_product([self.lengths[0]]) // self.config.constants["XBLOCK"])
        most = min(2 * MULTIPROCESSORS // (constant_product(q.sizes[:2], 1) * blocks), steps)
        return 1 << max(most, 1).bit_length() - 1

    def _merge(self) -> list[str]:
        """One row of the results from all parts, in their order."""
        outer, self.lines = self.lines, []
        width = tile(constant_size(self.views["v"].sizes[3]))
        self.lines += [
            *length_line("queries", self.lengths[0], self.plain),
            "x = (tl.program_id(0) % queries).to(tl.int64)",
            "pair = (tl.program_id(0) // queries).to(tl.int32)",
            f"batch = pair // {self.heads}",
            f"head = pair % {self.heads}",
            f"e = tl.arange(0, {width})",
        ]
        out = self._rows("out", "head")
        step = "x" if out.step == "1" else f"x * {out.step}"
        lane = "e" if out.lane == "1" else f"e * {out.lane}"
        self.lines += [
            f"slot = (pair.to(tl.int64) * queries + x) * {self.parts} + tl.arange(0, {self.parts})",
            "parts = tl.load(ws1 + slot)",
            "highest = tl.max(parts, 0)",
            f"base = tl.where(highest == {LOWEST}, 0.0, highest)",
            f"weight = {self._exponentials('parts', 'base')}",
            "total = tl.sum(tl.load(ws2 + slot) * weight, 0)",
            f"sums = tl.sum(tl.load(ws0 + (slot * {width})[:, None] + e[None, :]) * weight[:, None], 0)",
            *self._filled(),
            f"tl.store({out.base} + {step} + {lane}, sums / total{also(lane_mask('e', out.width))})",
            *self._rows_stored(None),
        ]
        lines, self.lines = self.lines, outer
        return lines
