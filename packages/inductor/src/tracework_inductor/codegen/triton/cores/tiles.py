"""Products of large matrices: a block computes a tile of the result on tensor cores, and all that follows for its elements.

Three tiles share a function: of the first matrix (y, r), of the second one (r, x) and of the result (y, x), on which the rest of the kernel
is computed before anything is stored. What the matrices are computed from is loaded and computed as the tiles are. Tiles are taken in bands
of some rows, so that blocks that run at the same time read few columns. Where there are too few tiles to fill the device, the inner
dimension is split into parts, whose results a second function adds up in their order; where there are many, as many blocks as the device
holds take one tile after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....errors import InductorError
from ....ir.index import INT32_LIMIT, Size, product
from ....ir.scalar_ops import SCALAR_OPS
from ....schedule.matrix_product import MatrixProduct, extents, matrix_product
from ....schedule.plan import LoopKernel, index_checks
from ...renderer import KERNEL_NAME, RenderedKernel
from ..body import BodyWriter, Tile, Value
from ..config import TileConfig, tile_configs
from ..header import function_header, launch_record, source_text
from ..kernel import repeatable
from ..printer import IndexPrinter, PythonPrinter, fits_text
from ..text_rules import HALF, POINTER
from ..tiling import positions

__all__ = ["configs", "render"]

_FUNCTION = 8
"""Cost of a scalar op from which on it is a function, and no instruction or two."""


def configs(kernel: LoopKernel, capability: int = 80) -> list[TileConfig]:
    """How the kernel may be cut into tiles on a device of the capability, and on later ones; the best guess first."""
    found = _found(kernel)
    after = (i.op for p in kernel.passes[1:] for i in p.body.instructions)
    costly = any(op in SCALAR_OPS and SCALAR_OPS[op].cost >= _FUNCTION for op in after)
    return tile_configs(*extents(found), _itemsizes(kernel, found), found.dtype.itemsize, capability, costly)


def render(kernel: LoopKernel) -> RenderedKernel:
    """The Triton source, its signature and its launch record."""
    config = TileConfig.of(kernel.config) if kernel.config else configs(kernel)[0]
    return _Tiles(kernel, _found(kernel), config).rendered()


def _found(kernel: LoopKernel) -> MatrixProduct:
    found = matrix_product(kernel)
    if isinstance(found, str):
        raise InductorError(f"Triton kernel {kernel.name}: tiles were chosen for what is none of their products: {found}")
    return found


def _itemsizes(kernel: LoopKernel, found: MatrixProduct) -> tuple[int, int]:
    """Bytes in memory that an element of each matrix takes, as it waits for its turn."""
    body = kernel.passes[0].body
    sizes = []
    for ref in found.factors:
        loads = [body.instructions[n] for n in body.behind(ref.position) if body.instructions[n].op == "load"]
        sizes.append(max((kernel.layouts[i.args[0]].dtype.itemsize for i in loads), default=0))
    return sizes[0], sizes[1]


class _Tiles:
    """Writes the functions of one kernel."""

    def __init__(self, kernel: LoopKernel, found: MatrixProduct, config: TileConfig) -> None:
        self.kernel, self.found, self.config = kernel, found, config
        self.names: dict[Any, str] = {symbol: f"ks{n}" for n, symbol in enumerate(kernel.sizes)}
        self.names |= {symbol: f"number{n}" for n, symbol in enumerate(kernel.numbers)}
        self.axes = {"y": found.rows, "x": found.columns, "s": found.rows}
        self.size: dict[str, Size] = {d: product(a.size for a in axes) for d, axes in self.axes.items()}
        self.blocks = {"y": config.rows, "x": config.columns, "s": config.second_rows, "r": config.inner}
        self.batches: Size = product(a.size for a in found.batches)
        self.inner: Size = product(a.size for a in found.inner)
        step = config.inner * config.parts
        self.whole_steps = isinstance(self.inner, int) and self.inner % step == 0
        self.printer, self.python = IndexPrinter(self.names, {}), PythonPrinter(self.names)
        counts: list[Size] = [layout.elements() for layout in kernel.layouts.values()]
        if config.parts > 1:
            counts.append(self.batches * self.size["y"] * self.size["x"] * config.parts)
        known = all(isinstance(e, int) and e <= INT32_LIMIT for e in counts) and not kernel.sizes
        self.fits32 = None if known else fits_text(counts, {s: self.names[s] for s in kernel.sizes})

    def rendered(self) -> RenderedKernel:
        config, functions = self.config, self._functions()
        entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
        form = f" split {config.parts}" if config.parts > 1 else " persistent" if config.persistent else ""
        record = launch_record(
            entries=entries,
            grids=self._grids(),
            configs=[config.record()],
            fits32=self.fits32,
            workspace=self._workspace(),
            repeatable=repeatable(self.kernel),
            kind="product in tiles" + form,
            checks=bool(index_checks(self.kernel)),
        )
        signature = tuple(POINTER[self.kernel.layouts[b].dtype] for b in self.kernel.buffers)
        signature += (POINTER[torch.int64],) * len(self.kernel.numbers) + ("i64",) * len(self.kernel.sizes)
        return RenderedKernel(source_text(functions, entries), signature, record)

    def _grids(self) -> list[str]:
        count = self._count("x", "y")
        if self.config.parts > 1:
            return [f"{count} * PARTS", self._count("x", "s")]
        return [f"min({count}, BLOCKS)" if self.config.persistent else count]

    def _count(self, *dims: str) -> str:
        """Tiles, as the host counts them."""
        counts = [f"(-(-({self.python.text(self.size[d])}) // {d.upper()}BLOCK))" for d in dims]
        return " * ".join([*counts, *([f"({self.python.text(self.batches)})"] if self.found.batches else [])])

    def _workspace(self) -> list[dict[str, str]]:
        """What parts leave for the second function: a float32 for each element."""
        elements = " * ".join(
            f"({self.python.text(s)})" for s in (self.config.parts, self.batches, self.size["y"], self.size["x"])
        )
        return [{"dtype": "float32", "elements": elements}] if self.config.parts > 1 else []

    def _functions(self) -> list[str]:
        config = self.config
        if config.parts > 1:
            split = ["part = pid % PARTS", "pid = pid // PARTS"]
            first = [*self._start(), *split, *self._tile("y"), *self._product()]
            inside = self._inside("y", "x")
            first.append(f"tl.store({self._place('y')}, acc{', ' + inside if inside else ''})")
            second = [*self._start(), *self._tile("s"), "acc = tl.zeros([SBLOCK, XBLOCK], tl.float32)"]
            inside = self._inside("s", "x")
            load = f"tl.load({self._place('s')}{', ' + inside + ', other=0' if inside else ''})"
            second += ["for part in tl.static_range(PARTS):", f"    acc += {load}"]
            return [self._function(first), self._function([*second, *self._rest("s")])]
        lines = [*self._tile("y"), *self._product(), *self._rest("y")]
        if not config.persistent:
            return [self._function([*self._start(), *lines])]
        tiles = " * ".join(
            [*(self._blocks(d) for d in ("x", "y")), *([f"({self.printer.text(self.batches)})"] if self.found.batches else [])]
        )
        loop = f"for pid in tl.range(first_tile, {tiles}, tl.num_programs(0), flatten=True):"
        head = [line.replace("pid", "first_tile") for line in self._start()]
        return [self._function([*head, loop, *(f"    {line}" for line in lines)])]

    def _function(self, lines: Sequence[str]) -> str:
        pointers = [f"p{n}" for n in range(len(self.kernel.buffers) + len(self.kernel.numbers))]
        sizes = [f"ks{n}" for n in range(len(self.kernel.sizes))]
        header = function_header(pointers, sizes, list(self.config.constants), workspace=self.config.parts > 1)
        return header.replace("WORKSPACE", "ws0, ") + "".join(f"    {line}\n" for line in lines)

    def _blocks(self, dim: str) -> str:
        """How many blocks a dimension has, as the kernel counts them."""
        return f"(({self.printer.text(self.size[dim])} + {dim.upper()}BLOCK - 1) // {dim.upper()}BLOCK)"

    def _start(self) -> list[str]:
        lines = ["pid = tl.program_id(0)"]
        if self.fits32 is not None:
            lines += ["if WIDE:", "    pid = pid.to(tl.int64)"]
        return lines + [f"number{n} = tl.load(p{len(self.kernel.buffers) + n})" for n in range(len(self.kernel.numbers))]

    def _tile(self, rows: str) -> list[str]:
        """The positions of the tile's elements; rows: the dimension of its rows."""
        lines: list[str] = []
        across = self._blocks("x")
        place = "pid"
        if self.found.batches:
            down = self._blocks(rows)
            lines += [f"z = pid // ({down} * {across})", f"place = pid % ({down} * {across})"]
            lines += positions(self.found.batches, "z", self.printer)
            place = "place"
        if rows == "s":
            lines += [f"row = {place} // {across}", f"column = {place} % {across}"]
        else:
            lines += [
                f"band = BAND * {across}",
                f"first = {place} // band * BAND",
                f"height = tl.minimum({self._blocks(rows)} - first, BAND)",
                f"row = first + {place} % band % height",
                f"column = {place} % band // height",
            ]
        for dim, start, lanes in ((rows, "row", "[:, None]"), ("x", "column", "[None, :]")):
            lines.append(f"{dim} = {start} * {dim.upper()}BLOCK + tl.arange(0, {dim.upper()}BLOCK){lanes}")
            if (mask := self._mask(dim)) is not None:
                lines.append(f"{mask} = {dim} < {self.printer.text(self.size[dim])}")
            lines += positions(self.axes[dim], dim, self.printer)
        return lines

    def _mask(self, dim: str) -> str | None:
        size = self.size[dim]
        return None if isinstance(size, int) and size % self.blocks[dim] == 0 else f"{dim}mask"

    def _inside(self, *dims: str) -> str:
        return " & ".join(m for d in dims if (m := self._mask(d)) is not None)

    def _place(self, rows: str) -> str:
        """Where a part keeps an element of the product."""
        batch = f"part * {self.printer.operand(self.batches)} + z" if self.found.batches else "part"
        return (
            f"ws0 + ((({batch}) * {self.printer.operand(self.size['y'])} + {rows}) * {self.printer.operand(self.size['x'])} + x)"
        )

    def _writer(self, dims: tuple[str, str], along: str, prefix: str) -> BodyWriter:
        """Of a tile with these dimensions; along: the variable of the inner dimension."""
        masks = {d: self._mask(d) for d in dims if d != "r"}
        masks["r"] = None if self.whole_steps else f"{along}mask"
        writer = BodyWriter(Tile(dims, masks), IndexPrinter(dict(self.names), {}), {}, self.fits32 is None, prefix)
        named = [("z", "z", self.found.batches), ("r", along, self.found.inner)]
        named += [(d, d, self.axes[d]) for d in dims if d != "r"]
        for dim, name, axes in named:
            for n, axis in enumerate(axes):
                writer.printer.names[axis.var] = name if len(axes) == 1 else f"{name}{n}"
                writer.printer.ranges[axis.var] = (0, axis.size - 1)
                writer.symbol_dims[axis.var] = frozenset() if dim == "z" else frozenset({dim})
        for n, buffer in enumerate(self.kernel.buffers):
            writer.pointers[buffer] = f"p{n}"
            writer.element[buffer] = self.kernel.layouts[buffer].dtype
        return writer

    def _product(self) -> list[str]:
        """The loop over the inner dimension; its result is acc."""
        body = self.kernel.passes[0].body
        first, second = self._writer(("y", "r"), "q", "a"), self._writer(("r", "x"), "r", "b")
        before: list[str] = []
        texts = []
        for writer, ref in zip((first, second), self.found.factors, strict=True):
            writer.inner = writer.zeros = True
            writer.enter_loop(before)
            texts.append(self._factor(writer, writer.run_one(body, ref.position, {})))
            writer.leave_loop()
        steps = ["q = roff + tl.arange(0, RBLOCK)[None, :]", "r = roff + tl.arange(0, RBLOCK)[:, None]"]
        if not self.whole_steps:
            steps += ["qmask = q < rlast", "rmask = r < rlast"]
        for name in ("q", "r"):
            steps += positions(self.found.inner, name, self.printer)
        precision = "" if self.found.dtype in HALF else ', input_precision="ieee"'
        steps += [*first.lines, *second.lines, f"acc = tl.dot({texts[0]}, {texts[1]}, acc{precision})"]
        inner, begin, limits = self.printer.text(self.inner), "0", []
        if self.config.parts > 1:
            limits = [
                f"each = ({inner} + RBLOCK * PARTS - 1) // (RBLOCK * PARTS) * RBLOCK",
                "rfirst = part * each",
                f"rlast = tl.minimum(rfirst + each, {inner})",
            ]
            begin = "rfirst"
        else:
            limits = [f"rlast = {inner}"]
        start = "acc = tl.zeros([YBLOCK, XBLOCK], tl.float32)"
        return [*limits, start, *before, f"for roff in range({begin}, rlast, RBLOCK):", *(f"    {line}" for line in steps)]

    def _factor(self, writer: BodyWriter, value: Value) -> str:
        """An element of a matrix as tensor cores take it, zero behind the end of the inner dimension."""
        whole, mask = writer.full(value), writer.tile.masks["r"]
        if mask is not None and not writer.is_zero_outside(value, "r"):
            whole = f"tl.where({mask}, {whole}, 0.0)"
        return f"({whole}).to({HALF[self.found.dtype]})" if self.found.dtype in HALF else whole

    def _rest(self, rows: str) -> list[str]:
        """What is computed from the product."""
        writer = self._writer((rows, "x"), "r", "t")
        writer.locals[self.found.name] = Value("acc", frozenset({rows, "x"}), torch.float32)
        for one in self.kernel.passes[1:]:
            writer.run(one.body)
            writer.end_pass()
        return writer.lines
