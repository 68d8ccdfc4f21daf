"""What all kernels of attention have in common beside scores: operands, sizes, blocks of rows, functions and their launch."""

from __future__ import annotations

import dataclasses

import torch

from .....ir.body import LoopBody
from .....ir.buffer import BufferView
from .....ir.index import Size, constant_size, same
from .....ir.score_masks import definitions, number_in_place
from .....schedule.plan import CoreKernel
from ....renderer import KERNEL_NAME, RenderedKernel
from ...config import Config
from ...header import function_header, launch_record, source_text
from ...printer import IndexPrinter, PythonPrinter
from ...text_rules import POINTER
from .config import Row, Tables, no_more
from .text import divides, lanes_mask, length_line, loaded, tile

__all__ = ["Attention", "Rows"]

DESCRIBED = 16
"""Bytes of which starts of rows are multiples where descriptors tell them."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a tensor of (batch, heads, length, width) as a kernel reads them."""

    base: str
    step: str
    """Text of the distance between rows."""
    lane: str
    """Text of the distance between elements of a row."""
    width: int


class Attention:
    """One kernel: `x` counts the rows of a program's block, `r` those of a step's."""

    tables: Tables
    names: tuple[str, ...] = ()
    """Of the operands and results before what the body reads and the blocks."""
    outer = 2
    """The axis of (batch, head, query, key) that a program has a block of; it walks over the other one of the last two."""
    by_descriptors = False
    """Whether steps are of keys and values, which descriptors may tell."""
    border = "r_in"
    """Text of which scores of a step are scores, where not all are."""

    def __init__(self, kernel: CoreKernel) -> None:
        self.kernel = kernel
        facts = dict(kernel.node.facts)
        self.body: LoopBody = facts["body"]
        self.scale: float = facts["scale"]
        self.extents: tuple[int, ...] = facts["extents"]
        self.whole: int = facts.get("whole", 0)
        self.index: tuple[Size, ...] = facts["index"]
        operands = [*kernel.node.operands, *kernel.node.results]
        count = len(self.names) - len(kernel.node.results)
        named = [*operands[:count], *kernel.node.results]
        views = zip(self.names, named, strict=True)
        self.views: dict[str, BufferView] = dict(views)  # type: ignore[arg-type]  # operands with names are there
        self.blocks: list[BufferView] = [v for v in kernel.node.operands[count : count + facts["blocks"]] if v is not None]
        self.pointers = {name: f"p{n}" for n, name in enumerate(kernel.layouts)}
        self.symbols = {symbol: f"ks{n}" for n, symbol in enumerate(kernel.sizes)}
        self.plain = IndexPrinter(dict(self.symbols), {})
        self.dtype = kernel.layouts[self.views["q"].buffer].dtype
        self.lines: list[str] = []
        self.config = self._config()
        self.parts = self._parts()
        self.described = self.row().descriptors and self._keys_are_described()
        """Whether descriptors tell where keys and values are, if addresses are aligned."""

    # sizes

    @property
    def lengths(self) -> tuple[Size, Size]:
        """How many queries and how many keys."""
        return self.views["q"].sizes[2], self.views["k"].sizes[2]

    @property
    def count(self) -> Size:
        """How many rows all blocks have."""
        return self.lengths[self.outer - 2]

    def _config(self) -> Config:
        rows, step, warps, stages, _ = self.row()
        own, other = (self.lengths[self.outer - 2], self.lengths[3 - self.outer])
        rows, step = no_more(rows, own), no_more(step, other)
        return Config({"XBLOCK": rows, "RBLOCK": step}, warps, stages)

    def row(self) -> Row:
        """Of the tables, for these operands."""
        widths = max(constant_size(self.views[n].sizes[3]) for n in ("q", "v"))
        row = self.tables.row(self.dtype, widths, self.kernel.device, self._scores_stay())
        if row.descriptors and not self._keys_are_described():
            return self.tables.row(self.dtype, widths, self.kernel.device)
        return row

    def _scores_stay(self) -> bool:
        """Whether no number changes scores that are seen, and none of what hides others lies in memory."""
        facts, fill = dict(self.kernel.node.facts), number_in_place(self.body)
        last = self.body.instructions[definitions(self.body)["changed"].position]
        if fill is not None:
            last = self.body.instructions[last.args[2 if fill.negated else 1].position]
        return last.op == "local" and "mask" not in facts and not any(True for _ in self.body.loads())

    def _parts(self) -> int:
        """Into how many parts, a power of two, programs share what a block walks over: every n-th step of n parts."""
        return 1

    def text(self, size: Size) -> str:
        """Of a size, as an operand."""
        return self.plain.operand(size)

    def precision(self) -> str:
        return ', input_precision="tf32x3"' if self.dtype == torch.float32 else ""

    # text

    def rendered(self) -> RenderedKernel:
        """The kernel's functions: this one, and the one that merges parts, where there are some."""
        self._write()
        config, own, q = self.config, PythonPrinter(self.symbols), self.views["q"]
        rows = config.constants["XBLOCK"]
        heads = f"({own.text(q.sizes[0])}) * {self.heads}"
        grids = [f"((({own.text(self.count)}) + {rows - 1}) // {rows}) * {heads} * {self.parts}"]
        functions, scratch = [self.lines], []
        if self.parts > 1:
            merged = f"({own.text(self.lengths[0])}) * {heads}"
            functions.append(self._merge())
            grids.append(merged)
            slots = f"{merged} * {self.parts}"
            scratch = [f"{slots} * {tile(constant_size(self.views['v'].sizes[3]))}", slots, slots]
        entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
        arguments = [*self.symbols.values(), *(f"ws{n}" for n in range(len(scratch)))]
        described = ["ALIGNED"] if self.described else []
        header = function_header([*self.pointers.values()], arguments, [*config.constants, *described], workspace=False)
        split = f", keys in {self.parts} parts" if self.parts > 1 else ""
        record = launch_record(
            entries=entries,
            grids=grids,
            configs=[config.record()],
            fits32=None,
            workspace=[{"dtype": "float32", "elements": elements} for elements in scratch],
            repeatable=True,
            kind=f"{self.kernel.node.core.replace('_', ' of ')}, {rows} rows at a time{split}",
            checks=any(True for _ in self.body.checks()),
            by_alignment=self.described,
        )
        signature = tuple(POINTER[layout.dtype] for layout in self.kernel.layouts.values()) + ("i64",) * len(self.symbols)
        texts = [header + "".join(f"    {line}\n" for line in lines) for lines in functions]
        return RenderedKernel(source_text(texts, entries), signature, record)

    @property
    def heads(self) -> int:
        """How many heads of a batch have programs of their own."""
        return constant_size(self.views["q" if self.outer == 2 else "k"].sizes[1])

    def _merge(self) -> list[str]:
        raise NotImplementedError

    def _write(self) -> None:
        raise NotImplementedError

    def _program(self) -> None:
        """Which block of which head the program has; blocks that see most come first where later queries see more."""
        own, split = self.lengths[self.outer - 2], self.parts > 1
        self.lines += [
            *length_line("queries", self.lengths[0], self.plain),
            *length_line("keys", self.lengths[1], self.plain),
            f"blocks = ({'queries' if self.outer == 2 else 'keys'} + {self.config.constants['XBLOCK'] - 1}) // XBLOCK",
            *([f"program = tl.program_id(0) // {self.parts}", f"part = tl.program_id(0) % {self.parts}"] if split else []),
            f"block = ({'program' if split else 'tl.program_id(0)'} % blocks).to(tl.int32)",
            f"pair = ({'program' if split else 'tl.program_id(0)'} // blocks).to(tl.int32)",
            *(["block = blocks - 1 - block"] if self.outer == 2 else []),
            f"batch = pair // {self.heads}",
            f"{'head' if self.outer == 2 else 'group'} = pair % {self.heads}",
            "x = block * XBLOCK + tl.arange(0, XBLOCK)",
            "x_first = block * XBLOCK",
            f"x_last = tl.minimum(x_first + XBLOCK, {'queries' if self.outer == 2 else 'keys'}) - 1",
        ]
        self.x_mask = None if divides(own, self.config.constants["XBLOCK"]) else "x_in"
        if self.x_mask:
            self.lines.append(f"x_in = (x < {'queries' if self.outer == 2 else 'keys'})[:, None]")

    @property
    def groups(self) -> int:
        """How many heads of queries share one of keys."""
        return constant_size(self.views["q"].sizes[1]) // constant_size(self.views["k"].sizes[1])

    def _rows(self, name: str, head: str) -> Rows:
        """Writes where the rows of a head begin."""
        view = self.views[name]
        terms = (self.times("batch", view.strides[0]), self.times(head, view.strides[1]))
        self.lines.append(f"{name}_base = " + " + ".join([self._start(view), *filter(None, terms)]))
        return Rows(f"{name}_base", self.text(view.strides[2]), self.text(view.strides[3]), constant_size(view.sizes[3]))

    @staticmethod
    def _address(rows: Rows, at: str, lanes: str) -> str:
        step = at if rows.step == "1" else f"{at} * {rows.step}"
        lane = lanes if rows.lane == "1" else f"{lanes} * {rows.lane}"
        return f"{rows.base} + ({step})[:, None] + ({lane})[None, :]"

    def _load(self, rows: Rows, at: str, lanes: str, within: str | None) -> str:
        return loaded(self._address(rows, at, lanes), within, lanes_mask(lanes, rows.width))

    def _place_of_row(self, name: str, head: str, at: str) -> str:
        """Text of where the one number of a row of queries is."""
        view = self.views[name]
        terms = (
            self.times("batch", view.strides[0]),
            self.times(head, view.strides[1]),
            self.times(at, view.strides[2], wide=False),
        )
        return " + ".join([self._start(view), *filter(None, terms)])

    def _of_rows(self, name: str, head: str, at: str, within: str | None, other: str) -> str:
        """Text of a load of one number for each row of queries."""
        place = self._place_of_row(name, head, at)
        return f"tl.load({place})" if within is None else f"tl.load({place}, {within}, other={other})"

    def _keys_are_described(self) -> bool:
        return self.by_descriptors and all(self._is_described(self.views[n]) for n in "kv")

    def _is_described(self, view: BufferView) -> bool:
        """Whether rows of each head lie as descriptors want them, in memory that is aligned."""
        itemsize = self.kernel.layouts[view.buffer].dtype.itemsize
        steps = [*view.strides[:3], view.offset]
        return (
            same(view.strides[3], 1)
            and tile(constant_size(view.sizes[3])) == view.sizes[3]
            and all(isinstance(n, int) and n * itemsize % DESCRIBED == 0 for n in steps)
            and not same(view.strides[2], 0)
        )

    def _described_rows(self, name: str, rows: Rows) -> str:
        """The line that makes the descriptor of the rows of a head."""
        return f"{name}_rows = tl.make_tensor_descriptor({rows.base}, [keys, {rows.width}], [{rows.step}, 1], [RBLOCK, {rows.width}])"

    def _widths(self) -> None:
        width, out = constant_size(self.views["q"].sizes[3]), constant_size(self.views["v"].sizes[3])
        self.lines.append(f"d = tl.arange(0, {tile(width)})")
        self.lines.append("e = d" if tile(width) == tile(out) else f"e = tl.arange(0, {tile(out)})")

    def times(self, text: str, stride: Size, size: Size = 0, wide: bool = True) -> str:
        """Text of a position times a distance, empty where it is 0."""
        if not text or same(stride, 0) or same(size, 1):
            return ""
        place = f"({text})" if " " in text and not text.startswith("(") else text
        place = f"{place}.to(tl.int64)" if wide else place
        return place if same(stride, 1) else f"{place} * {self.text(stride)}"

    def _start(self, view: BufferView) -> str:
        return " + ".join([self.pointers[view.buffer], *([] if same(view.offset, 0) else [self.text(view.offset)])])
