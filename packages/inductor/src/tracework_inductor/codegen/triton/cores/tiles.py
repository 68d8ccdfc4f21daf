"""Products of large matrices: a block computes a tile of the result on tensor cores, and all that follows for its elements.

Three tiles share a function: of the first matrix (y, r), of the second one (r, x) and of the result (y, x), on which the rest of the kernel
is computed before anything is stored. What the matrices are computed from is loaded and computed as the tiles are. Tiles are taken in bands
of some rows, so that blocks that run at the same time read few columns. Where there are too few tiles to fill the device, the inner
dimension is split into parts, whose results a second function adds up in their order; where there are many, as many blocks as the device
holds take one tile after the other.

Matrices that are read as they lie may be copied by descriptors of tensors, which the kernel makes first, in memory that Triton asks the
launcher for: then one thread starts a copy, and the edges of a matrix are the copy's. They want addresses of 16 bytes. Where a launch has
others, the constant ALIGNED says so, and the same kernel loads element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ....errors import InductorError
from ....ir.body import Axis, LoopBody, Ref
from ....ir.index import INT32_LIMIT, Size, constant_product, product, simplify
from ....ir.scalar_ops import SCALAR_OPS
from ....schedule.matrix_product import MatrixProduct, extents, matrix_product
from ....schedule.plan import LoopKernel, index_checks
from ...renderer import KERNEL_NAME, RenderedKernel
from ..body import BodyWriter, Tile, Value
from ..config import Epilogue, TileConfig, tile_configs
from ..functions import LIGHT
from ..header import function_header, launch_record, source_text
from ..kernel import repeatable
from ..printer import IndexPrinter, PythonPrinter, fits_text
from ..text_rules import HALF, POINTER
from ..tiling import positions
from .rectangles import Rectangle, rectangle

__all__ = ["are_read_by_rows", "configs", "render"]

_Dims = tuple[Sequence[Axis], Sequence[Axis]]
_DESCRIPTORS_FROM = 90
"""Compute capability from which on the hardware copies by descriptors; before, Triton makes loads of them."""
_DESCRIBED = frozenset((torch.bfloat16, torch.float16, torch.float32))
_FUNCTION = 8
"""Cost of a scalar op from which on it is a function, and no instruction or two."""
_INSTRUCTIONS = frozenset(("exp", "exp2", "sigmoid"))
"""Functions that the hardware has the larger part of: they take few registers."""


def configs(kernel: LoopKernel, capability: int = 80) -> list[TileConfig]:
    """How the kernel may be cut into tiles on a device of the capability, and on later ones; the best guess first."""
    found = _found(kernel)
    described = capability >= _DESCRIPTORS_FROM and _is_described(kernel, found)
    after, moved = _epilogue(kernel, found), sum(constant_product(b.sizes) * b.dtype.itemsize for b in kernel.layouts.values())
    itemsizes = _itemsizes(kernel, found), found.dtype.itemsize
    return tile_configs(*extents(found), *itemsizes, capability, after, described, moved)


def are_read_by_rows(kernel: LoopKernel, found: MatrixProduct) -> bool:
    """Whether both matrices are read as they lie, and have what is added up side by side."""
    first, second = (_place(kernel, found, side) for side in (0, 1))
    return _known(kernel, found) and first is not None and second is not None and not first.turned and second.turned


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


def _epilogue(kernel: LoopKernel, found: MatrixProduct) -> Epilogue:
    """What follows the product."""
    after = [i for p in kernel.passes[1:] for i in p.body.instructions]
    functions = [i.op for i in after if i.op in LIGHT or i.op in SCALAR_OPS and SCALAR_OPS[i.op].cost >= _FUNCTION]
    costly = not _INSTRUCTIONS.issuperset(functions) and (len(functions) > 1 or not LIGHT.issuperset(functions))
    rows, columns = ({axis.var for axis in axes} for axes in (found.rows, found.columns))
    moved = {"load": 0, "store": 0}
    for op, buffer, index in {(i.op, *i.args[:2]) for i in after if i.op in moved}:
        if rows | columns <= getattr(index, "free_symbols", frozenset()):
            moved[op] += kernel.layouts[buffer].dtype.itemsize
    return Epilogue(costly, moved["load"], moved["store"])


def _known(kernel: LoopKernel, found: MatrixProduct) -> bool:
    """Whether sizes are known, and two dimensions tell where an element is."""
    return not kernel.sizes and not found.batches


def _is_described(kernel: LoopKernel, found: MatrixProduct) -> bool:
    """Whether descriptors tell where both matrices are."""
    return _known(kernel, found) and all(_place(kernel, found, side) is not None for side in (0, 1))


def _place(kernel: LoopKernel, found: MatrixProduct, side: int) -> Rectangle | None:
    """Where the first or the second matrix is, if a descriptor tells it."""
    dims = (found.rows, found.inner) if side == 0 else (found.inner, found.columns)
    loaded = _loaded(kernel, kernel.passes[0].body, found.factors[side], found, dims)
    return None if loaded is None else loaded[1]


def _loaded(kernel: LoopKernel, body: LoopBody, ref: Ref, found: MatrixProduct, dims: _Dims) -> tuple[str, Rectangle] | None:
    """The buffer that a factor is an element of, as it lies there, and where; None for one that is computed."""
    load = body.instructions[ref.position]
    if load.op != "load" or load.args[2] is not None or found.dtype not in HALF:
        return None
    buffer, index, _ = load.args
    if kernel.layouts[buffer].dtype != found.dtype or buffer in kernel.writes:
        return None
    ranges = {axis.var: (0, axis.size - 1) for axes in dims for axis in axes}
    place = rectangle(simplify(index, ranges), dims, found.dtype.itemsize)
    return None if place is None else (buffer, place)


class _Descriptor(NamedTuple):
    """What is made of a matrix: pointer, matrix, its sizes and those of the rectangles, slower dimension first."""

    pointer: str
    place: Rectangle
    sizes: tuple[int, int]
    blocks: tuple[str, str]


class _Writer(BodyWriter):
    """Of a tile of the result: what lies in memory as the tile does is moved by descriptors."""

    def __init__(self, tiles: _Tiles, tile: Tile, narrow: bool) -> None:
        super().__init__(tile, IndexPrinter(dict(tiles.names), {}), {}, narrow)
        self.tiles = tiles
        self.read = {i.args[0] for p in tiles.kernel.passes for i in p.body.loads()}

    def _described(self, buffer: str, place: Rectangle) -> tuple[str, str]:
        """The descriptor of a matrix of the result's size, and the place of the tile in it."""
        return self.tiles.descriptor(buffer, place, (self.tile.dims[0], self.tile.dims[1]))

    def _rectangle(self, buffer: str, index: Size) -> Rectangle | None:
        """Where a matrix of the result's size lies, if a descriptor tells it."""
        dims, element = self.tile.dims, self.element[buffer]
        if not self.tiles.described or element not in _DESCRIBED:
            return None
        index = simplify(index, self.printer.ranges)
        place = rectangle(index, (self.tiles.axes["y"], self.tiles.axes[dims[1]]), element.itemsize)
        return None if place is None or place.turned else place

    def load_at_once(self, buffer: str, index: Size) -> str | None:
        place = self._rectangle(buffer, index) if buffer not in self.tiles.kernel.writes else None
        if place is None:
            return None
        name, start = self._described(buffer, place)
        return f"{name}.load({start})"

    def store(self, buffer: str, index: Size, value: Value, mode: str, guard: Value | None = None) -> None:
        plain = len(self.lines)
        super().store(buffer, index, value, mode, guard)
        alone = mode == "set" and guard is None and buffer not in self.read
        place = self._rectangle(buffer, index) if alone and value.dims == frozenset(self.tile.dims) else None
        if place is not None:
            name, start = self._described(buffer, place)
            element = self.element[buffer]
            held = f"{value.text}.to({HALF[element]})" if element in HALF else value.text
            lines = self.lines[plain:]
            self.lines[plain:] = ["if ALIGNED:", f"    {name}.store({start}, {held})", "else:", *_indented(lines)]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_STARTS = {
    "y": "row * YBLOCK",
    "s": "row * SBLOCK",
    "x": "column * XBLOCK",
    "c": "column * XBLOCK + slice * CBLOCK",
    "r": "roff",
}
"""Dimension -> where the tile begins in it; "c" is that of columns, a slice of which is computed at a time."""


class _Tiles:
    """Writes the functions of one kernel."""

    def __init__(self, kernel: LoopKernel, found: MatrixProduct, config: TileConfig) -> None:
        self.kernel, self.found, self.config = kernel, found, config
        self.names: dict[Any, str] = {symbol: f"ks{n}" for n, symbol in enumerate(kernel.sizes)}
        self.names |= {symbol: f"number{n}" for n, symbol in enumerate(kernel.numbers)}
        self.axes = {"y": found.rows, "x": found.columns, "s": found.rows, "c": found.columns, "r": found.inner}
        self.size: dict[str, Size] = {d: product(a.size for a in axes) for d, axes in self.axes.items()}
        self.blocks = {"y": config.rows, "x": config.columns, "s": config.second_rows, "c": config.columns, "r": config.inner}
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
        self.described = config.descriptors and known and _known(kernel, found)
        self.descriptors: dict[_Descriptor, str] = {}

    def rendered(self) -> RenderedKernel:
        config, functions = self.config, self._functions()
        entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
        form = f" split {config.parts}" if config.parts > 1 else " persistent" if config.persistent else ""
        form += " by descriptors" if config.descriptors else ""
        record = launch_record(
            entries=entries,
            grids=self._grids(),
            configs=[config.record()],
            fits32=self.fits32,
            workspace=self._workspace(),
            repeatable=repeatable(self.kernel),
            kind="product in tiles" + form,
            checks=bool(index_checks(self.kernel)),
            by_alignment=config.descriptors,
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
            lines = [*split, *self._tile("y"), *self._product()]
            first = [*self._start(), *lines]
            inside = self._inside("y", "x")
            first.append(f"tl.store({self._place('y')}, acc{', ' + inside if inside else ''})")
            second = [*self._start(), *self._tile("s"), "acc = tl.zeros([SBLOCK, XBLOCK], tl.float32)"]
            inside = self._inside("s", "x")
            load = f"tl.load({self._place('s')}{', ' + inside + ', other=0' if inside else ''})"
            second += ["for part in tl.static_range(PARTS):", f"    acc += {load}"]
            return [self._function(first), self._function([*second, *self._rest("s")])]
        product, rest = self._product(), self._rest_in_slices() if config.slices > 1 else self._rest("y")
        lines = [*self._tile("y"), *product, *rest]
        if not config.persistent:
            return [self._function([*self._start(), *lines])]
        tiles = " * ".join(
            [*(self._blocks(d) for d in ("x", "y")), *([f"({self.printer.text(self.batches)})"] if self.found.batches else [])]
        )
        loop = f"for pid in tl.range(first_tile, {tiles}, tl.num_programs(0), flatten=True):"
        head = [line.replace("pid", "first_tile") for line in self._start()]
        return [self._function([*head, *self._made(), loop, *_indented(lines)])]

    def _function(self, lines: Sequence[str]) -> str:
        pointers = [f"p{n}" for n in range(len(self.kernel.buffers) + len(self.kernel.numbers))]
        sizes = [f"ks{n}" for n in range(len(self.kernel.sizes))]
        constants = [*self.config.constants, *(["ALIGNED"] if self.config.descriptors else [])]
        header = function_header(pointers, sizes, constants, workspace=self.config.parts > 1)
        return header.replace("WORKSPACE", "ws0, ") + "".join(f"    {line}\n" for line in lines)

    def _blocks(self, dim: str) -> str:
        """How many blocks a dimension has, as the kernel counts them."""
        return f"(({self.printer.text(self.size[dim])} + {dim.upper()}BLOCK - 1) // {dim.upper()}BLOCK)"

    def _start(self) -> list[str]:
        lines = ["pid = tl.program_id(0)"]
        if self.fits32 is not None:
            lines += ["if WIDE:", "    pid = pid.to(tl.int64)"]
        return lines + [f"number{n} = tl.load(p{len(self.kernel.buffers) + n})" for n in range(len(self.kernel.numbers))]

    def descriptor(self, buffer: str, place: Rectangle, dims: tuple[str, str]) -> tuple[str, str]:
        """The name of a matrix's descriptor, and where its rectangle begins, of the two dimensions in the order of memory."""
        slow, fast = reversed(dims) if place.turned else dims
        rows, columns = self.size[slow], self.size[fast]
        assert isinstance(rows, int) and isinstance(columns, int)
        blocks = f"{slow.upper()}BLOCK", f"{fast.upper()}BLOCK"
        made = _Descriptor(f"p{self.kernel.buffers.index(buffer)}", place, (rows, columns), blocks)
        name = self.descriptors.setdefault(made, f"d{len(self.descriptors)}")
        return name, f"[{_STARTS[slow]}, {_STARTS[fast]}]"

    def _made(self) -> list[str]:
        """Lines that make descriptors, of all that was asked for before."""
        lines = []
        for (pointer, place, (rows, columns), blocks), name in self.descriptors.items():
            start = f"{pointer} + {place.offset}" if place.offset else pointer
            shape = f"[{rows}, {columns}], [{place.stride}, 1], [{', '.join(blocks)}]"
            lines.append(f"    {name} = tl.make_tensor_descriptor({start}, {shape})")
        return ["if ALIGNED:", *lines] if lines else []

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
        return [*lines, *self._places(rows, "[:, None]"), *self._places("x", "[None, :]")]

    def _places(self, dim: str, lanes: str) -> list[str]:
        """The positions in a dimension, and which of them are inside."""
        lines = [f"{dim} = {_STARTS[dim]} + tl.arange(0, {dim.upper()}BLOCK){lanes}"]
        if (mask := self._mask(dim)) is not None:
            lines.append(f"{mask} = {dim} < {self.printer.text(self.size[dim])}")
        return lines + positions(self.axes[dim], dim, self.printer)

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
        tile, narrow = Tile(dims, masks), self.fits32 is None
        if "r" in dims:
            writer = BodyWriter(tile, IndexPrinter(dict(self.names), {}), {}, narrow, prefix)
        else:
            writer = _Writer(self, tile, narrow)
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
        before: list[str] = []
        (left, of_left), (right, of_right) = (self._side(side, before) for side in ("left", "right"))
        steps = ["q = roff + tl.arange(0, RBLOCK)[None, :]", "r = roff + tl.arange(0, RBLOCK)[:, None]"]
        if not self.whole_steps:
            steps += ["qmask = q < rlast", "rmask = r < rlast"]
        for name in ("q", "r"):
            steps += positions(self.found.inner, name, self.printer)
        precision = "" if self.found.dtype in HALF else ', input_precision="ieee"'
        steps += [*of_left, *of_right, f"acc = tl.dot({left}, {right}, acc{precision})"]
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

    def _side(self, side: str, before: list[str]) -> tuple[str, list[str]]:
        """Text of a factor's tile, and the lines of a step that make it."""
        left = side == "left"
        writer = self._writer(("y", "r"), "q", "a") if left else self._writer(("r", "x"), "r", "b")
        ref = self.found.factors[0 if left else 1]
        writer.inner = writer.zeros = True
        writer.enter_loop(before)
        text, lines = self._factor(writer, writer.run_one(self.kernel.passes[0].body, ref.position, {})), writer.lines
        writer.leave_loop()
        copied = self._copied(writer, ref)
        if copied is None:
            return text, lines
        return side, ["if ALIGNED:", f"    {side} = {copied}", "else:", *_indented([*lines, f"{side} = {text}"])]

    def _copied(self, writer: BodyWriter, ref: Ref) -> str | None:
        """A rectangle of a matrix that a descriptor tells; None where there is none."""
        a, b = writer.tile.dims
        loaded = (
            _loaded(self.kernel, self.kernel.passes[0].body, ref, self.found, (self.axes[a], self.axes[b]))
            if self.described
            else None
        )
        if loaded is None:
            return None
        buffer, place = loaded
        name, start = self.descriptor(buffer, place, (a, b))
        return f"{name}.load({start})" + (".T" if place.turned else "")

    def _factor(self, writer: BodyWriter, value: Value) -> str:
        """An element of a matrix as tensor cores take it, zero behind the end of the inner dimension."""
        whole, mask = writer.full(value), writer.tile.masks["r"]
        if mask is not None and not writer.is_zero_outside(value, "r"):
            whole = f"tl.where({mask}, {whole}, 0.0)"
        return f"({whole}).to({HALF[self.found.dtype]})" if self.found.dtype in HALF else whole

    def _rest_in_slices(self) -> list[str]:
        """What is computed from the product, for some of the columns after others."""
        lines, cut = [], ["acc"]
        while len(cut) < self.config.slices:
            for name in cut:
                apart = f"tl.permute(tl.reshape({name}, [YBLOCK, 2, {self.config.columns // (2 * len(cut))}]), (0, 2, 1))"
                lines.append(f"{name}0, {name}1 = tl.split({apart})")
            cut = [name + half for name in cut for half in "01"]
        *firsts, last = cut
        chosen = "".join(f"{name} if slice == {n} else " for n, name in enumerate(firsts)) + last
        rest = [f"acc_slice = {chosen}", *self._places("c", "[None, :]"), *self._rest("y", "c", "acc_slice")]
        return [*lines, f"for slice in tl.static_range({self.config.slices}):", *_indented(rest)]

    def _rest(self, rows: str, columns: str = "x", held: str = "acc") -> list[str]:
        """What is computed from the product."""
        writer = self._writer((rows, columns), "r", "t")
        writer.locals[self.found.name] = Value(held, frozenset({rows, columns}), torch.float32)
        for one in self.kernel.passes[1:]:
            writer.run(one.body)
            writer.end_pass()
        return writer.lines
