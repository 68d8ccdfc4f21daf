"""Gradients of what bodies read: sums of those of the scores along queries, along keys, or over the scores of a distance."""

from __future__ import annotations

from .....ir.index import Size, constant_size
from ...body import Tile
from ...config import Config
from .backward import Backward, OfKeys, OfQueries
from .config import TABLES
from .kernel import Rows
from .text import also, length_line

__all__ = ["SumsOfDistances", "SumsOfKeys", "SumsOfQueries"]


class SumsOfQueries(OfQueries):
    """For each of a block of queries, the sum over keys."""

    names = ("grad", "q", "k", "v", "logs", "highest", "delta", "total")

    def _shape(self, q: Rows) -> str:
        return "[XBLOCK]"

    def _summed(self) -> str:
        return "sums += tl.sum(g, 1)"

    def _store(self) -> None:
        rows = "x < queries" if self.x_mask else None
        self.lines.append(f"tl.store({self._place_of_row('total', 'head', 'x')}, sums{also(rows)})")


class SumsOfKeys(OfKeys):
    """For each of a block of keys, the sum over the queries of a head."""

    names = ("grad", "q", "k", "v", "logs", "highest", "delta", "total")

    @property
    def heads(self) -> int:
        return constant_size(self.views["q"].sizes[1])

    def _unseen(self, least: str) -> list[str]:
        return [] if self.mask is None or self.mask.shown is None else super()._unseen(least)

    def _write(self) -> None:
        self._program()
        self._widths()
        self.lines += ["head = group", f"group = head // {self.groups}"]
        k, v = (self._rows(n, "group") for n in ("k", "v"))
        self.lines += [*self._keys(k, v), "sums = tl.zeros([XBLOCK], tl.float32)"]
        self._walk(["sums += tl.sum(g, 1)"])
        rows = "x < keys" if self.x_mask else None
        self.lines.append(f"tl.store({self._place_of_row('total', 'head', 'x')}, sums{also(rows)})")


class SumsOfDistances(Backward):
    """For each of a block of distances, of a query from a key, the sum over all pairs that are so far apart.

    A step has as many queries as there are distances in the block, and all keys that are so far from one of them, n - 1 before those of its
    first query. Lane c of query a is key a - c + n - 1 then, and what was computed for it is moved there.
    """

    tables = TABLES["distances"]
    border = "x_in & r_in"
    names = ("grad", "q", "k", "v", "logs", "highest", "delta", "total")

    @property
    def count(self) -> Size:
        return self.lengths[0] + self.lengths[1] - 1

    def _config(self) -> Config:
        rows, step, warps, stages, _ = self.row()
        return Config({"XBLOCK": rows, "RBLOCK": step}, warps, stages)

    def _write(self) -> None:
        rows = self.config.constants["XBLOCK"]
        self.lines += [
            *length_line("queries", self.lengths[0], self.plain),
            *length_line("keys", self.lengths[1], self.plain),
            f"blocks = (queries + keys + {rows - 2}) // XBLOCK",
            "block = (tl.program_id(0) % blocks).to(tl.int32)",
            "pair = (tl.program_id(0) // blocks).to(tl.int32)",
            f"batch = pair // {self.heads}",
            f"head = pair % {self.heads}",
            "lane = tl.arange(0, XBLOCK)",
            "least = block * XBLOCK - (keys - 1)",
        ]
        self._widths()
        group = "head" if self.groups == 1 else f"(head // {self.groups})"
        grad, q, k, v = (self._rows(n, h) for n, h in {"grad": "head", "q": "head", "k": group, "v": group}.items())
        inside, within = "(x < queries)[:, None]", "((r >= 0) & (r < keys))[:, None]"
        self.x_mask = "x_in"
        writer, precision = self._writer(), self.precision()
        writer.tile = Tile(("x", "r"), {"x": "x_in", "r": "r_in"})
        outside, writer.lines = writer.lines, []
        writer.lines += [
            "x = start + lane",
            "r = start - least - (XBLOCK - 1) + tl.arange(0, RBLOCK)",
            f"x_in = {inside}",
            "r_in = ((r >= 0) & (r < keys))[None, :]",
            "row = x[:, None]",
            "column = r[None, :]",
            "x_wide = x.to(tl.int64)",
            "r_wide = r.to(tl.int64)",
            f"q = {self._load(q, 'x_wide', 'd', inside)}",
            f"grad = {self._load(grad, 'x_wide', 'e', inside)}",
            f"k = {self._load(k, 'r_wide', 'd', within)}",
            f"v = {self._load(v, 'r_wide', 'e', within)}",
            *self._of_sums("x", "x < queries", "[:, None]"),
            self._products("q", "k"),
        ]
        self._weights(writer, True, True, f"tl.dot(grad, tl.trans(v){precision})")
        writer.lines.append("sums += tl.sum(tl.gather(g, lane[:, None] - lane[None, :] + (XBLOCK - 1), 1), 0)")
        inner, writer.lines = writer.lines, outside
        self.lines += [
            "sums = tl.zeros([XBLOCK], tl.float32)",
            "begin = tl.maximum(least, 0) // XBLOCK * XBLOCK",
            "end = tl.minimum(queries, keys + least + XBLOCK - 1)",
            "for start in range(begin, end, XBLOCK):",
            *(f"    {line}" for line in inner),
            "place = block * XBLOCK + lane",
            f"tl.store({self._place_of_row('total', 'head', 'place')}, sums, place < queries + keys - 1)",
        ]
