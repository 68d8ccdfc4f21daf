"""Scores of attention's kernels, as the body of a call changes and masks them."""

from __future__ import annotations

from typing import Any

import torch

from .....ir.body import Ref
from .....ir.index import INT32_LIMIT, Size
from .....ir.score_masks import ScoreMask, definitions, number_in_place
from .....schedule.plan import CoreKernel
from ...body import BodyWriter, Tile, Value
from ...printer import IndexPrinter
from .kernel import Attention, Rows
from .text import LOG2E, LOWEST, all_of

__all__ = ["ScoredAttention"]


class _Writer(BodyWriter):
    """Writes a body; wide: names of positions in 64 bits, where 32 are not known to be enough for places in memory."""

    wide: dict[Any, str] = {}

    def index(self, size: Size, *, value: bool = False) -> tuple[str, frozenset[str]]:
        """As every writer's; values stay in 32 bits."""
        if value or not self.wide:
            return super().index(size, value=value)
        plain, self.printer = self.printer, IndexPrinter({**self.printer.names, **self.wide}, self.printer.ranges)
        try:
            return super().index(size)
        finally:
            self.printer = plain


class ScoredAttention(Attention):
    """A kernel that makes scores of blocks of queries and keys."""

    def __init__(self, kernel: CoreKernel) -> None:
        super().__init__(kernel)
        self.defined = definitions(self.body)
        self.fill = number_in_place(self.body)
        self.mask: ScoreMask | None = dict(kernel.node.facts).get("mask")

    def _writer(self) -> BodyWriter:
        """What writes the body's lines for the score `s`."""
        names: dict[Any, str] = dict(self.symbols)
        dims: dict[Any, frozenset[str]] = {}
        places = ("batch", "head", "row" if self.outer == 2 else "column", "column" if self.outer == 2 else "row")
        for n, (variable, place) in enumerate(zip(self.index, places, strict=True)):
            if not isinstance(variable, int):
                names[variable] = place
                dims[variable] = frozenset() if n < 2 else frozenset({"x" if n == self.outer else "r"})
        ranges = {a.var: (0, a.size - 1) for a in self.body.axes}
        elements = [layout.elements() for name, layout in self.kernel.layouts.items() if name in self._captured()]
        narrow = all(isinstance(n, int) and n <= INT32_LIMIT for n in elements)
        wide = {} if narrow else {v: f"{names[v]}.to(tl.int64)" for v in self.index if not isinstance(v, int)}
        writer = _Writer(self._tile_masks(False), IndexPrinter(names, ranges), {}, narrow)
        writer.wide = wide
        writer.symbol_dims = dims
        writer.pointers = {name: self.pointers[name] for name in self.kernel.layouts}
        writer.element = {name: layout.dtype for name, layout in self.kernel.layouts.items()}
        writer.locals["score"] = Value("s", frozenset({"x", "r"}), torch.float32)
        writer.lines = self.lines
        return writer

    @property
    def unchanged(self) -> bool:
        """Whether the body gives the score itself."""
        return self.body.instructions[self.defined["changed"].position].op == "local"

    def _shown(self, name: str) -> Ref:
        """What the body defines by this name where no mask hides a score."""
        ref, fill = self.defined[name], self.fill
        if name == "changed" and self.mask is not None and self.mask.shown is not None:
            return self.mask.shown
        i = self.body.instructions[ref.position]
        if fill is None or i.op != "where" or i.args[0] != fill.value:
            return ref
        return i.args[2 if fill.negated else 1]

    @property
    def unit(self) -> float:
        """What `c`, the changed score, is times to be the score: the product itself, where it is not changed and keeps its order."""
        return self.scale if self.unchanged and self.scale > 0 else 1.0

    def _products(self, a: str, b: str) -> str:
        """The line that makes the score `s`, or at once `c`, where it is not changed."""
        name, scale = "c" if self.unchanged else "s", self.scale / self.unit
        return f"{name} = tl.dot({a}, tl.trans({b}){self.precision()})" + ("" if scale == 1.0 else f" * {scale!r}")

    def _exponentials(self, of: str, above: str) -> str:
        """Text of 2 to the power of how far `of` is above a row's `above`, in scores. A changed score may be the lowest number there is, as
        masks are: it is no infinity before the difference is taken."""
        factor = self.unit * LOG2E
        return (
            f"tl.exp2({of} * {factor!r} - {above} * {factor!r})" if self.unchanged else f"tl.exp2(({of} - {above}) * {factor!r})"
        )

    def _captured(self) -> set[str]:
        return {i.args[0] for i in self.body.loads()}

    def _tile_masks(self, on_border: bool) -> Tile:
        return Tile(("x", "r"), {"x": self.x_mask, "r": "r_in" if on_border else None})

    def _value(self, writer: BodyWriter, name: str, values: dict[int, Any], masked: bool = True) -> Value:
        ref = self.defined[name] if masked else self._shown(name)
        return writer.run_one(self.body, ref.position, values)

    def _scores_of_keys(self, k: Rows, v: Rows, border: bool) -> list[str]:
        """Lines that load a block of keys and values, and make `s`, the scores of the block of queries `q`."""
        inside = "(r < keys)[:, None]" if border else None
        loads = [f"k = {self._load(k, 'r_wide', 'd', inside)}", f"v = {self._load(v, 'r_wide', 'e', inside)}"]
        if self.described:
            copies = [f"    {name} = {name}_rows.load([first, 0])" for name in "kv"]  # zeros behind the end
            loads = ["if ALIGNED:", *copies, "else:", *(f"    {line}" for line in loads)]
        return ["column = r[None, :]", "r_wide = r.to(tl.int64)", *loads, self._products("q", "k")]

    def _described_keys(self, k: Rows, v: Rows) -> list[str]:
        """The lines before all steps that make descriptors, if there are any."""
        made = [f"    {self._described_rows(name, rows)}" for name, rows in (("k", k), ("v", v))]
        return ["if ALIGNED:", *made] if self.described else []

    def _changed(self, writer: BodyWriter, masked: bool, border: bool) -> dict[int, Any]:
        """Lines that make `c`, the changed score, -inf where the mask is false, from `s`; gives the values of the body."""
        values: dict[int, Any] = {}
        changed = None if self.unchanged else writer.full(self._value(writer, "changed", values, masked))
        keep = writer.full(self._value(writer, "keep", values)) if masked and self.fill is None else None
        if changed is not None:
            writer.lines.append(f"c = {changed}")
        mask = all_of(keep, self.border if border else None)
        if mask != "None":
            writer.lines.append(f"c = tl.where({mask}, c, {LOWEST})")
        return values
