"""Attention whose scores are changed and masked by a loop body, without a score in memory.

A program takes a block of queries, walks over blocks of keys, and keeps a running maximum and sum. What the mask hides from a whole block
is not visited, and where it hides nothing it is not evaluated: bounds (reach.py) say so before the loop, or the counts and indices of a
BlockMask where bounds know too little. Where the body puts a low number in the place of scores, blocks of nothing else are not visited
either, unless a row turns out to have no score so far above the number that its exponential is 0. Where few blocks of queries would leave
most of a device idle, programs share the keys of one, and a second function merges their parts. Gradients are two more kernels that compute
the weights again from the sums and the largest scores of the forward: one walks over keys for a block of queries, one over queries for a
block of keys. Gradients of what the body reads are sums of those of the scores over queries, over keys, or over the scores of a distance
between the two, each by a kernel of that kind. Each result is summed up by one program, in order.

The node's facts: `body` over (batch, head, query, key), which reads the score as `local("score")` and defines "changed" and "keep" and, for
gradients, "slope" where the changed score is another; `scale`; `extents`, queries and keys of a block of the BlockMask; `zeroed`, of the forward:
whether a row that sees nothing is 0, and not NaN.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....autotune.cost import has_warp_groups
from ....ir.body import LoopBody, Ref
from ....ir.buffer import BufferView
from ....ir.cores import power_of_two
from ....ir.index import INT32_LIMIT, Size, constant_product, constant_size, same
from ....schedule.plan import CoreKernel
from ...reach import Reach, Words, reach_of
from ...renderer import KERNEL_NAME, RenderedKernel
from ..body import BodyWriter, Tile, Value
from ..config import MULTIPROCESSORS, Config
from ..header import function_header, launch_record, source_text
from ..printer import IndexPrinter, PythonPrinter
from ..text_rules import POINTER

__all__ = ["WRITERS", "render"]

LEAST = 16
"""Rows, columns and terms of the smallest product that tensor cores compute."""
LEAST_STEPS = 8
"""Over keys, of a part of them, where few programs share the device."""
LOG2E = math.log2(math.e)
LOWEST = 'float("-inf")'
HIDES = -1e4
"""A number up to which what the body puts in the place of scores is a mask."""
UNSEEN = 256.0
"""How far a score is below the highest whose exponential is 0, with what float32 rounds such a sum by."""
ROWS = 1024
"""Of which the highest scores are looked at together."""
WORDS = Words("tl.maximum", "tl.minimum", "tl.where")
HALVES = frozenset({torch.bfloat16, torch.float16})

FORWARD = {64: (128, 64, 8, 3), 128: (128, 64, 8, 3), 256: (128, 32, 8, 2)}
"""Up to which width: rows of the program's block, rows of a step's, warps, stages; for halves. No register of these spills on Hopper, nor of the
others up to 128, as far as the body allows. Blocks have 16 rows or more for each warp where registers allow it: warps stand below
one another in scores that a second product reads, so that warps without rows of their own compute those of others again."""
OF_QUERIES = {64: (128, 32, 8, 3), 128: (128, 64, 8, 2), 256: (128, 16, 8, 2)}
OF_KEYS = {64: (128, 32, 8, 3), 128: (128, 32, 8, 3), 256: (32, 32, 8, 1)}
IN_REGISTERS_FORWARD = {64: (128, 64, 8, 3), 128: (128, 64, 8, 3), 256: (64, 32, 8, 2)}
IN_REGISTERS_BACKWARD = {64: (128, 32, 8, 3), 128: (64, 64, 8, 2), 256: (32, 32, 8, 1)}
"""The same where warps hold operands of products in their own registers, as on Ampere: of the blocks above, up to 3,800 bytes of a thread of them
spill there, and a block of 256 elements a row takes more shared memory than smaller devices have."""
DISTANCES = {64: (64, 128, 8, 1), 128: (32, 64, 8, 1), 256: (16, 32, 4, 1)}
"""Distances of a block, which are as many as queries of a step, and keys of a step, twice as many: of n queries and n distances, 2 * n - 1."""
WIDE_FORWARD = {64: (64, 32, 4, 2), 128: (32, 16, 8, 2), 256: (16, 16, 8, 1)}
"""The same for float32, of which a product is three."""
WIDE_BACKWARD = {64: (32, 32, 8, 2), 128: (16, 32, 8, 1), 256: (16, 16, 8, 1)}
WIDE_DISTANCES = {64: (32, 64, 8, 1), 128: (16, 32, 4, 1), 256: (16, 32, 4, 1)}


def render(kernel: CoreKernel) -> RenderedKernel:
    """The Triton source, its signature and its launch record."""
    return WRITERS[kernel.node.core](kernel).rendered()


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a tensor of (batch, heads, length, width) as a kernel reads them."""

    base: str
    step: str
    """Text of the distance between rows."""
    lane: str
    """Text of the distance between elements of a row."""
    width: int


@dataclasses.dataclass(frozen=True)
class Fill:
    """A number that the body puts in the place of scores: where the condition is false, or true if negated."""

    condition: Ref
    negated: bool
    number: float


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


class _Attention:
    """One kernel: `x` counts the rows of a program's block, `r` those of a step's."""

    tables = FORWARD, WIDE_FORWARD
    in_registers = IN_REGISTERS_FORWARD
    """In place of the first table, on devices whose warps hold operands in registers."""
    names: tuple[str, ...] = ()
    """Of the operands and results before what the body reads and the blocks."""
    outer = 2
    """The axis of (batch, head, query, key) that a program has a block of; it walks over the other one of the last two."""
    border = "r_in"
    """Text of which scores of a step are scores, where not all are."""

    def __init__(self, kernel: CoreKernel) -> None:
        self.kernel = kernel
        facts = dict(kernel.node.facts)
        self.body: LoopBody = facts["body"]
        self.scale: float = facts["scale"]
        self.extents: tuple[int, ...] = facts["extents"]
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
        self.defined = {i.args[0]: i.args[1] for i in self.body.instructions if i.op == "define"}
        self.fill = self._fill()

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
        widths = max(constant_size(self.views[n].sizes[3]) for n in ("q", "v"))
        halves, wide = self.tables
        halves = halves if has_warp_groups(self.kernel.device.index or 0) else self.in_registers
        table = wide if self.dtype == torch.float32 else halves
        rows, step, warps, stages = table[next(w for w in table if widths <= w)]
        own, other = (self.lengths[self.outer - 2], self.lengths[3 - self.outer])
        rows, step = _no_more(rows, own), _no_more(step, other)
        return Config({"XBLOCK": rows, "RBLOCK": step}, warps, stages)

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
            scratch = [f"{slots} * {_tile(constant_size(self.views['v'].sizes[3]))}", slots, slots]
        entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
        arguments = [*self.symbols.values(), *(f"ws{n}" for n in range(len(scratch)))]
        header = function_header([*self.pointers.values()], arguments, [*config.constants], workspace=False)
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
            *_length("queries", self.lengths[0], self.plain),
            *_length("keys", self.lengths[1], self.plain),
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
        self.x_mask = None if _divides(own, self.config.constants["XBLOCK"]) else "x_in"
        if self.x_mask:
            self.lines.append(f"x_in = (x < {'queries' if self.outer == 2 else 'keys'})[:, None]")

    @property
    def groups(self) -> int:
        """How many heads of queries share one of keys."""
        return constant_size(self.views["q"].sizes[1]) // constant_size(self.views["k"].sizes[1])

    def _rows(self, name: str, head: str) -> Rows:
        """Writes where the rows of a head begin."""
        view = self.views[name]
        terms = (_times("batch", view.strides[0], self), _times(head, view.strides[1], self))
        self.lines.append(f"{name}_base = " + " + ".join([self._start(view), *filter(None, terms)]))
        return Rows(f"{name}_base", self.text(view.strides[2]), self.text(view.strides[3]), constant_size(view.sizes[3]))

    @staticmethod
    def _address(rows: Rows, at: str, lanes: str) -> str:
        step = at if rows.step == "1" else f"{at} * {rows.step}"
        lane = lanes if rows.lane == "1" else f"{lanes} * {rows.lane}"
        return f"{rows.base} + ({step})[:, None] + ({lane})[None, :]"

    def _load(self, rows: Rows, at: str, lanes: str, within: str | None) -> str:
        return _loaded(self._address(rows, at, lanes), within, _lanes(lanes, rows.width))

    def _place_of_row(self, name: str, head: str, at: str) -> str:
        """Text of where the one number of a row of queries is."""
        view = self.views[name]
        terms = (
            _times("batch", view.strides[0], self),
            _times(head, view.strides[1], self),
            _times(at, view.strides[2], self, wide=False),
        )
        return " + ".join([self._start(view), *filter(None, terms)])

    def _of_rows(self, name: str, head: str, at: str, within: str | None, other: str) -> str:
        """Text of a load of one number for each row of queries."""
        place = self._place_of_row(name, head, at)
        return f"tl.load({place})" if within is None else f"tl.load({place}, {within}, other={other})"

    def _widths(self) -> None:
        width, out = constant_size(self.views["q"].sizes[3]), constant_size(self.views["v"].sizes[3])
        self.lines.append(f"d = tl.arange(0, {_tile(width)})")
        self.lines.append("e = d" if _tile(width) == _tile(out) else f"e = tl.arange(0, {_tile(out)})")

    # the body

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

    def _fill(self) -> Fill | None:
        """What the body ends with, if that is all that hides scores."""
        instructions = self.body.instructions
        last, keep = (instructions[self.defined[name].position] for name in ("changed", "keep"))
        if last.op != "where" or keep.op != "constant" or not keep.args[0]:
            return None
        condition, *chosen = last.args
        for n, ref in enumerate(chosen):
            constant = instructions[ref.position]
            if constant.op == "constant" and -math.inf < float(constant.args[0]) <= HIDES:
                return Fill(condition, n == 0, float(constant.args[0]))
        return None

    def _shown(self, name: str) -> Ref:
        """What the body defines by this name where it puts no number in the place of scores."""
        ref, fill = self.defined[name], self.fill
        i = self.body.instructions[ref.position]
        if fill is None or i.op != "where" or i.args[0] != fill.condition:
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

    # loops

    def _loops(self, writer: BodyWriter, step: Callable[[BodyWriter, bool, bool], None]) -> None:
        """Writes the loops over what the block sees; `step(writer, masked, border)` writes one step of a loop, in which the mask is evaluated if
        masked, and rows may be outside of the tensor if on the border."""
        loop, block = self.index[5 - self.outer], self.index[self.outer]
        limit = "keys" if self.outer == 2 else "queries"
        values: dict[int, Any] = {}

        def scalar(ref: Ref) -> str:
            return writer.run_one(self.body, ref.position, values).text

        def reach_by(condition: Ref, negated: bool) -> Reach:
            return reach_of(self.body, condition, loop, block, ("x_first", "x_last"), limit, scalar, WORDS, negated)

        reach = reach_by(*((self.defined["keep"], False) if self.fill is None else (self.fill.condition, self.fill.negated)))
        if self.fill is not None and not reach.known:
            self.fill, reach = None, reach_by(self.defined["keep"], False)
        if not reach.known and self.blocks and self._blocks_fit():
            self._by_blocks(writer, step)
        else:
            self._by_bounds(writer, reach, limit, step)

    def _loop(
        self, writer: BodyWriter, head: Sequence[str], step: Callable[[BodyWriter, bool, bool], None], masked: bool, border: bool
    ) -> None:
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

    def _by_bounds(self, writer: BodyWriter, reach: Reach, limit: str, step: Callable[[BodyWriter, bool, bool], None]) -> None:
        rblock = self.config.constants["RBLOCK"]
        length = self.lengths[3 - self.outer]
        whole = _divides(length, rblock)
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

    def _rest(self, writer: BodyWriter, reach: Reach, limit: str, step: Callable[[BodyWriter, bool, bool], None]) -> None:
        """Writes the loops over what only has the number that the body puts in the place of scores. It has weight in a row whose highest score
        is no more: one of which nothing else is seen."""
        low, high = reach.possible.low, reach.possible.high
        if self.fill is None or (low is None and high is None) or not (lines := self._unseen(f"{self.fill.number + UNSEEN!r}")):
            return
        rblock = self.config.constants["RBLOCK"]
        border = not _divides(self.lengths[3 - self.outer], rblock)
        writer.lines += lines
        if low is not None:
            self._loop(writer, [self._range("0", f"tl.minimum(begin, {limit}) * unseen")], step, True, border)
        if high is not None:
            writer.lines.append(f"behind = begin + (tl.maximum(end - begin, 0) + {rblock - 1}) // {rblock} * {rblock}")
            self._loop(writer, [self._range("behind", f"behind + ({limit} - behind) * unseen")], step, True, border)

    def _unseen(self, least: str) -> list[str]:
        """Lines that make `unseen` 1 where a row's highest score is not above a number, and else 0; none where the loops sum up nothing that
        depends on scores which a number has replaced."""
        return []

    def _range(self, begin: str, end: str) -> str:
        """The first line of a loop over the steps of this part."""
        if self.parts == 1:
            return f"for first in range({begin}, {end}, RBLOCK):"
        return f"for first in range({begin} + part * RBLOCK, {end}, {self.parts} * RBLOCK):"

    # a BlockMask

    def _blocks_fit(self) -> bool:
        own, other = (self.extents[self.outer - 2], self.extents[3 - self.outer])
        return own % self.config.constants["XBLOCK"] == 0 and other % self.config.constants["RBLOCK"] == 0

    def _by_blocks(self, writer: BodyWriter, step: Callable[[BodyWriter, bool, bool], None]) -> None:
        """Partial blocks under the mask, then full ones. The first four tensors count and list blocks of keys, the other four of queries."""
        rblock = self.config.constants["RBLOCK"]
        own, other = self.extents[self.outer - 2], self.extents[3 - self.outer]
        border = not _divides(self.lengths[3 - self.outer], rblock)
        chosen = self.blocks[:4] if self.outer == 2 else self.blocks[4:]
        for n, masked in ((0, True), (2, False)):
            count, listed = chosen[n : n + 2]
            places = [f"x_first // {own}"]
            at = [_times(t, s, self, z) for t, s, z in zip(("batch", "head", *places), count.strides, count.sizes)]
            row = [_times(t, s, self, z) for t, s, z in zip(("batch", "head", *places), listed.strides, listed.sizes)]
            name = "partial" if masked else "full"
            writer.lines.append(f"{name} = tl.load(" + " + ".join([self._start(count), *filter(None, at)]) + ")")
            writer.lines.append(f"{name}_at = " + " + ".join([self._start(listed), *filter(None, row)]))
            per = other // rblock
            step_of = _times(f"n // {per}", listed.strides[3], self, listed.sizes[3], wide=False) or "0"
            head = [
                f"for n in range({'part' if self.parts > 1 else '0'}, {name} * {per}, {self.parts}):",
                f"first = tl.load({name}_at + {step_of}) * {other} + n % {per} * RBLOCK",
            ]
            self._loop(writer, head, step, masked, border)

    def _start(self, view: BufferView) -> str:
        return " + ".join([self.pointers[view.buffer], *([] if same(view.offset, 0) else [self.text(view.offset)])])

    # what all have in common

    def _scores_of_keys(self, k: Rows, v: Rows, border: bool) -> list[str]:
        """Lines that load a block of keys and values, and make `s`, the scores of the block of queries `q`."""
        inside = "(r < keys)[:, None]" if border else None
        return [
            "column = r[None, :]",
            "r_wide = r.to(tl.int64)",
            f"k = {self._load(k, 'r_wide', 'd', inside)}",
            f"v = {self._load(v, 'r_wide', 'e', inside)}",
            self._products("q", "k"),
        ]

    def _changed(self, writer: BodyWriter, masked: bool, border: bool) -> dict[int, Any]:
        """Lines that make `c`, the changed score, -inf where the mask is false, from `s`; gives the values of the body."""
        values: dict[int, Any] = {}
        changed = None if self.unchanged else writer.full(self._value(writer, "changed", values, masked))
        keep = writer.full(self._value(writer, "keep", values)) if masked and self.fill is None else None
        if changed is not None:
            writer.lines.append(f"c = {changed}")
        mask = _and(keep, self.border if border else None)
        if mask != "None":
            writer.lines.append(f"c = tl.where({mask}, c, {LOWEST})")
        return values


class _Forward(_Attention):
    """Output, binary logarithms of sums, and largest scores of a block of queries."""

    names = ("q", "k", "v", "out", "logs", "highest")

    def _write(self) -> None:
        self._program()
        self._widths()
        group = "head" if self.groups == 1 else f"head // {self.groups}"
        q, k, v, out = (self._rows(n, h) for n, h in (("q", "head"), ("k", f"({group})"), ("v", f"({group})"), ("out", "head")))
        width = _tile(constant_size(self.views["v"].sizes[3]))
        self.lines += [
            "row = x[:, None]",
            "x_wide = x.to(tl.int64)",
            f"q = {self._load(q, 'x_wide', 'd', self.x_mask)}",
            f"highest = tl.full([XBLOCK], {LOWEST}, tl.float32)",
            "total = tl.zeros([XBLOCK], tl.float32)",
            f"sums = tl.zeros([XBLOCK, {width}], tl.float32)",
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
                f"tl.store(ws0 + (slot * {width})[:, None] + e[None, :], sums{_also(self.x_mask)})",
                f"tl.store(ws1 + slot, highest{_also(rows)})",
                f"tl.store(ws2 + slot, total{_also(rows)})",
            ]
            return
        self.lines += [
            *self._filled(),
            f"tl.store({self._address(out, 'x_wide', 'e')}, sums / total[:, None]{_also(self.x_mask, _lanes('e', out.width))})",
            *self._rows_stored(rows),
        ]

    def _unseen(self, least: str) -> list[str]:
        is_seen = f"highest > {least}" if self.x_mask is None else f"(highest > {least}) | (x >= queries)"
        return [f"unseen = tl.max(tl.where({is_seen}, 0, 1), 0)"]

    def _rows_stored(self, rows: str | None) -> list[str]:
        """The lines that store what is kept of a row: two numbers, since one of both is the highest score alone where that is a large one."""
        highest = "highest" if self.unit == 1.0 else f"highest * {self.unit!r}"
        return [
            f"tl.store({self._place_of_row('logs', 'head', 'x')}, logs{_also(rows)})",
            f"tl.store({self._place_of_row('highest', 'head', 'x')}, {highest}{_also(rows)})",
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
        width = _tile(constant_size(self.views["v"].sizes[3]))
        self.lines += [
            *_length("queries", self.lengths[0], self.plain),
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
            f"tl.store({out.base} + {step} + {lane}, sums / total{_also(_lane('e', out.width))})",
            *self._rows_stored(None),
        ]
        lines, self.lines = self.lines, outer
        return lines


class _Backward(_Attention):
    in_registers = IN_REGISTERS_BACKWARD

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


class _OfQueries(_Backward):
    """Gradients of a block of queries."""

    tables = OF_QUERIES, WIDE_BACKWARD
    names: tuple[str, ...] = ("grad", "q", "k", "v", "logs", "highest", "delta", "dq")

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
        ]
        precision = self.precision()

        def step(writer: BodyWriter, masked: bool, border: bool) -> None:
            writer.lines += self._scores_of_keys(k, v, border)
            self._weights(writer, masked, border, f"tl.dot(grad, tl.trans(v){precision})")
            writer.lines.append(self._summed())

        self._loops(self._writer(), step)
        self._store()

    def _shape(self, q: Rows) -> str:
        """Text of the shape of the sums."""
        return f"[XBLOCK, {_tile(q.width)}]"

    def _summed(self) -> str:
        """The line that adds a step to the sums."""
        return f"sums += tl.dot(g.to(k.dtype), k{self.precision()})"

    def _store(self) -> None:
        dq = self._rows("dq", "head")
        self.lines.append(
            f"tl.store({self._address(dq, 'x_wide', 'd')}, sums * {self.scale!r}{_also(self.x_mask, _lanes('d', dq.width))})"
        )


class _SumsOfQueries(_OfQueries):
    """For each of a block of queries, the sum over keys."""

    names = ("grad", "q", "k", "v", "logs", "highest", "delta", "total")

    def _shape(self, q: Rows) -> str:
        return "[XBLOCK]"

    def _summed(self) -> str:
        return "sums += tl.sum(g, 1)"

    def _store(self) -> None:
        rows = "x < queries" if self.x_mask else None
        self.lines.append(f"tl.store({self._place_of_row('total', 'head', 'x')}, sums{_also(rows)})")


class _OfKeys(_Backward):
    """Gradients of a block of keys and values, over all heads of queries that share them."""

    tables = OF_KEYS, WIDE_BACKWARD
    names: tuple[str, ...] = ("grad", "q", "k", "v", "logs", "highest", "delta", "dk", "dv")
    outer = 3

    def _write(self) -> None:
        self._program()
        self._widths()
        k, v, dk, dv = (self._rows(n, "group") for n in ("k", "v", "dk", "dv"))
        self.lines += [
            *self._keys(k, v),
            f"of_keys = tl.zeros([XBLOCK, {_tile(k.width)}], tl.float32)",
            f"of_values = tl.zeros([XBLOCK, {_tile(v.width)}], tl.float32)",
        ]
        outside, self.lines = self.lines, []
        self.lines.append("head = group" if self.groups == 1 else f"head = group * {self.groups} + member")
        precision = self.precision()
        self._walk([f"of_values += tl.dot(p.to(grad.dtype), grad{precision})", f"of_keys += tl.dot(g.to(q.dtype), q{precision})"])
        inner, self.lines = self.lines, outside
        self.lines += inner if self.groups == 1 else [f"for member in range({self.groups}):", *(f"    {line}" for line in inner)]
        self.lines += [
            f"tl.store({self._address(dk, 'x_wide', 'd')}, of_keys * {self.scale!r}{_also(self.x_mask, _lanes('d', dk.width))})",
            f"tl.store({self._address(dv, 'x_wide', 'e')}, of_values{_also(self.x_mask, _lanes('e', dv.width))})",
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


class _SumsOfKeys(_OfKeys):
    """For each of a block of keys, the sum over the queries of a head."""

    names = ("grad", "q", "k", "v", "logs", "highest", "delta", "total")

    @property
    def heads(self) -> int:
        return constant_size(self.views["q"].sizes[1])

    def _unseen(self, least: str) -> list[str]:
        return []

    def _write(self) -> None:
        self._program()
        self._widths()
        self.lines += ["head = group", f"group = head // {self.groups}"]
        k, v = (self._rows(n, "group") for n in ("k", "v"))
        self.lines += [*self._keys(k, v), "sums = tl.zeros([XBLOCK], tl.float32)"]
        self._walk(["sums += tl.sum(g, 1)"])
        rows = "x < keys" if self.x_mask else None
        self.lines.append(f"tl.store({self._place_of_row('total', 'head', 'x')}, sums{_also(rows)})")


class _SumsOfDistances(_Backward):
    """For each of a block of distances, of a query from a key, the sum over all pairs that are so far apart.

    A step has as many queries as there are distances in the block, and all keys that are so far from one of them, n - 1 before those of its
    first query. Lane c of query a is key a - c + n - 1 then, and what was computed for it is moved there.
    """

    tables = DISTANCES, WIDE_DISTANCES
    border = "x_in & r_in"
    names = ("grad", "q", "k", "v", "logs", "highest", "delta", "total")

    @property
    def count(self) -> Size:
        return self.lengths[0] + self.lengths[1] - 1

    def _config(self) -> Config:
        table = self.tables[self.dtype == torch.float32]
        rows, step, warps, stages = table[next(w for w in table if max(constant_size(self.views[n].sizes[3]) for n in "qv") <= w)]
        return Config({"XBLOCK": rows, "RBLOCK": step}, warps, stages)

    def _write(self) -> None:
        rows = self.config.constants["XBLOCK"]
        self.lines += [
            *_length("queries", self.lengths[0], self.plain),
            *_length("keys", self.lengths[1], self.plain),
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


WRITERS: dict[str, type[_Attention]] = {
    "attention": _Forward,
    "attention_queries": _OfQueries,
    "attention_keys": _OfKeys,
    "attention_sums_of_queries": _SumsOfQueries,
    "attention_sums_of_keys": _SumsOfKeys,
    "attention_sums_of_distances": _SumsOfDistances,
}
"""CoreNode.core -> what writes the kernel."""


def _length(name: str, size: Size, printer: IndexPrinter) -> list[str]:
    return [f"{name} = {size}" if isinstance(size, int) else f"{name} = ({printer.text(size)}).to(tl.int32)"]


def _times(text: str, stride: Size, of: _Attention, size: Size = 0, wide: bool = True) -> str:
    """Text of a position times a distance, empty where it is 0."""
    if not text or same(stride, 0) or same(size, 1):
        return ""
    place = f"({text})" if " " in text and not text.startswith("(") else text
    place = f"{place}.to(tl.int64)" if wide else place
    return place if same(stride, 1) else f"{place} * {of.text(stride)}"


def _divides(length: Size, block: int) -> bool:
    return isinstance(length, int) and length % block == 0


def _no_more(rows: int, length: Size) -> int:
    return rows if not isinstance(length, int) else max(LEAST, min(rows, power_of_two(length)))


def _tile(extent: int) -> int:
    """How many lanes a tile has for that many."""
    return max(LEAST, power_of_two(extent))


def _lane(name: str, extent: int) -> str | None:
    """A mask over the lanes of a row, if some are too many."""
    return None if _tile(extent) == extent else f"({name} < {extent})"


def _lanes(name: str, extent: int) -> str | None:
    """The same over the lanes of a tile."""
    lane = _lane(name, extent)
    return None if lane is None else f"{lane}[None, :]"


def _and(*masks: str | None) -> str:
    return " & ".join(m for m in masks if m is not None) or "None"


def _also(*masks: str | None) -> str:
    mask = _and(*masks)
    return "" if mask == "None" else f", {mask}"


def _loaded(at: str, *masks: str | None) -> str:
    mask = _and(*masks)
    return f"tl.load({at})" if mask == "None" else f"tl.load({at}, {mask}, other=0.0)"
