"""Gradients of queries, and of keys and values: each kernel computes the weights again."""

from __future__ import annotations

from collections.abc import Sequence

from ...body import BodyWriter
from .config import TABLES
from .kernel import Rows
from .loops import LoopedAttention
from .text import LOG2E, LOWEST, also, lanes_mask, tile

__all__ = ["Backward", "OfKeys", "OfQueries"]

ROWS = 1024
"""Of which the highest scores are looked at together."""


class Backward(LoopedAttention):
    """What the kernels of gradients have in common."""

    def _of_sums(self, at: str, rows: str | None, shape: str) -> list[str]:
        """Lines that load what is known of rows of queries. A row that sees nothing gets a sum beside which all vanishes."""
        lines = [f"{name} = {self._of_rows(name, 'head', at, rows, '0.0')}" for name in ("logs", "highest", "delta")]
        lines.insert(1, f'logs = tl.where(logs == {LOWEST}, float("inf"), logs){shape}')
        lines.insert(3, f"highest = tl.where(highest == {LOWEST}, 0.0, highest){shape}")
        lines[-1] += shape
        return [*lines, f"logs += highest * {LOG2E!r}"] if self.unchanged else lines

    def _weights(self, writer: BodyWriter, masked: bool, border: bool, inner: str) -> None:
        """Lines that make the weights `p` and the gradient `g` of the scores before they were changed, over the scale."""
        values = self._changed(writer, masked, border)
        power = f"c * {self.unit * LOG2E!r}" if self.unchanged else f"(c - highest) * {LOG2E!r}"
        writer.lines += [f"p = tl.exp2({power} - logs)", f"g = p * ({inner} - delta)"]
        if "slope" in self.defined:
            slope = writer.full(self._value(writer, "slope", values, masked))
            writer.lines.append(f"g = tl.where(p == 0.0, 0.0, g * {slope})")


class OfQueries(Backward):
    """Gradients of a block of queries."""

    tables = TABLES["queries"]
    names: tuple[str, ...] = ("grad", "q", "k", "v", "logs", "highest", "delta", "dq")
    by_descriptors = True

    def _write(self) -> None:
        self._program()
        self._widths()
        group = "head" if self.groups == 1 else f"(head // {self.groups})"
        grad, q, k, v = (self._rows(n, h) for n, h in {"grad": "head", "q": "head", "k": group, "v": group}.items())
        rows = "x < queries" if self.x_mask else None
        self.lines += [
            "row = x[:, None]",
            "x_wide = x.to(tl.int64)",
            f"q = {self._load(q, 'x_wide', 'd', self.x_mask)}",
            f"grad = {self._load(grad, 'x_wide', 'e', self.x_mask)}",
            *self._of_sums("x", rows, "[:, None]"),
            f"sums = tl.zeros({self._shape(q)}, tl.float32)",
            *self._described_keys(k, v),
        ]
        precision = self.precision()

        def step(writer: BodyWriter, masked: bool, border: bool) -> None:
            writer.lines += self._scores_of_keys(k, v, border)
            self._weights(writer, masked, border, f"tl.dot(grad, tl.trans(v){precision})")
            writer.lines.append(self._summed())

        self._loops(self._writer(), step)
        self._store()

    def _unseen(self, least: str) -> list[str]:
        if self.mask is None or self.mask.shown is None:  # a number in the place of scores has no gradient
            return []
        return [f"unseen = tl.max(tl.max(tl.where(highest > {least}, 0, 1), 1), 0)"]

    def _shape(self, q: Rows) -> str:
        """Text of the shape of the sums."""
        return f"[XBLOCK, {tile(q.width)}]"

    def _summed(self) -> str:
        """The line that adds a step to the sums."""
        return f"sums += tl.dot(g.to(k.dtype), k{self.precision()})"

    def _store(self) -> None:
        dq = self._rows("dq", "head")
        self.lines.append(
            f"tl.store({self._address(dq, 'x_wide', 'd')}, sums * {self.scale!r}{also(self.x_mask, lanes_mask('d', dq.width))})"
        )


class OfKeys(Backward):
    """Gradients of a block of keys and values, over all heads of queries that share them."""

    tables = TABLES["keys"]
    names: tuple[str, ...] = ("grad", "q", "k", "v", "logs", "highest", "delta", "dk", "dv")
    outer = 3

    def _write(self) -> None:
        self._program()
        self._widths()
        k, v, dk, dv = (self._rows(n, "group") for n in ("k", "v", "dk", "dv"))
        self.lines += [
            *self._keys(k, v),
            f"of_keys = tl.zeros([XBLOCK, {tile(k.width)}], tl.float32)",
            f"of_values = tl.zeros([XBLOCK, {tile(v.width)}], tl.float32)",
        ]
        outside, self.lines = self.lines, []
        self.lines.append("head = group" if self.groups == 1 else f"head = group * {self.groups} + member")
        precision = self.precision()
        self._walk([f"of_values += tl.dot(p.to(grad.dtype), grad{precision})", f"of_keys += tl.dot(g.to(q.dtype), q{precision})"])
        inner, self.lines = self.lines, outside
        self.lines += inner if self.groups == 1 else [f"for member in range({self.groups}):", *(f"    {line}" for line in inner)]
        self.lines += [
            f"tl.store({self._address(dk, 'x_wide', 'd')}, of_keys * {self.scale!r}{also(self.x_mask, lanes_mask('d', dk.width))})",
            f"tl.store({self._address(dv, 'x_wide', 'e')}, of_values{also(self.x_mask, lanes_mask('e', dv.width))})",
        ]

    def _keys(self, k: Rows, v: Rows) -> list[str]:
        """Lines that load the block of keys and values."""
        return [
            "row = x[:, None]",
            "x_wide = x.to(tl.int64)",
            f"k = {self._load(k, 'x_wide', 'd', self.x_mask)}",
            f"v = {self._load(v, 'x_wide', 'e', self.x_mask)}",
        ]

    def _walk(self, summed: Sequence[str]) -> None:
        """Writes the walk over queries of a head; summed: lines that add a step to sums."""
        q, grad = (self._rows(n, "head") for n in ("q", "grad"))

        def step(writer: BodyWriter, masked: bool, border: bool) -> None:
            inside, rows = ("(r < queries)[:, None]", "r < queries") if border else (None, None)
            writer.lines += [
                "column = r[None, :]",
                "r_wide = r.to(tl.int64)",
                f"q = {self._load(q, 'r_wide', 'd', inside)}",
                f"grad = {self._load(grad, 'r_wide', 'e', inside)}",
                *self._of_sums("r", rows, "[None, :]"),
                self._products("k", "q"),
            ]
            self._weights(writer, masked, border, f"tl.dot(v, tl.trans(grad){self.precision()})")
            writer.lines += summed

        self._loops(self._writer(), step)

    def _unseen(self, least: str) -> list[str]:
        rows = f'tl.load({self._place_of_row("highest", "head", "rows")}, rows < queries, other=float("inf"))'
        return [
            "unseen = 0",
            f"for first in range(0, queries, {ROWS}):",
            f"    rows = first + tl.arange(0, {ROWS})",
            f"    unseen = tl.maximum(unseen, tl.max(tl.where({rows} > {least}, 0, 1), 0))",
        ]
