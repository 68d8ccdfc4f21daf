"""Products of several rows on tensor cores: a block of the large matrix times all rows, which fill up the smallest tile that these take.

Three tiles share a kernel: of the large matrix (x, r), of the small one, turned (r, y), and of the result (x, y), on which everything after
the product is computed. Where there are too few blocks of columns to fill the device, the inner dimension is split into parts, whose
results a second function adds up in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir.body import Axis, Instruction, Ref, axes_behind
from ...ir.index import constant_size
from ...schedule.plan import LoopKernel, Pass
from . import config as config_table
from .body import BodyWriter, Tile, Value
from .header import function_header
from .printer import IndexPrinter
from .text_rules import HALF
from .tiling import Tiling, positions

__all__ = ["LEAST_ROWS", "Product", "product"]

LEAST_ROWS = 3
"""Rows of one piece from which tensor cores take less time than multiplying row by row; of columns, from two on."""
PLAIN = IndexPrinter({}, {})
"""Of known sizes."""


def product(kernel: LoopKernel, tiling: Tiling) -> Product | None:
    """The kernel as one that tensor cores compute, if it is."""
    rows = len(tiling.points())
    if rows < 2 or kernel.sizes or kernel.numbers or kernel.scratch or not kernel.passes or tiling.group("x") is None:
        return None
    inner, *rest = kernel.passes
    effects = [i for i in inner.body.instructions if i.dtype is None and i.op != "indirect"]
    dots = [i for i in effects if i.op == "reduce" and i.args[1] == "dot"]
    if inner.level != "inner" or len(dots) != len(effects) or any(p.level == "inner" for p in rest):
        return None
    if any(i.op == "indirect" and i.args[3] is not None for i in inner.body.instructions):
        return None  # its check is made by whoever runs all instructions
    maybe = [_factors(inner, i) for i in dots]
    found = [factors for factors in maybe if factors is not None]
    x = tiling.group("x")
    assert x is not None
    columns = {a.var for a in x.axes}
    if any(axis.var in columns for factors in found for axis in axes_behind(inner.body, factors[1])):
        return None  # each batch has rows of its own
    halves = {inner.body.instructions[ref.position].dtype for factors in found for ref in factors}
    if len(found) < len(maybe) or len(halves) != 1 or not halves <= set(HALF):
        return None
    quantised = any(kernel.layouts[i.args[0]].dtype.itemsize == 1 for i in inner.body.loads())
    many = rows >= LEAST_ROWS or quantised or tiling.contiguous == "x"
    half = halves.pop()
    return Product(kernel, tiling, rows, found, half) if many and half is not None else None


def _factors(inner: Pass, dot: Instruction) -> tuple[Ref, Ref] | None:
    """The factors (large, small) before they were widened to float32."""
    found = []
    for ref in dot.args[2:]:
        widened = inner.body.instructions[ref.position]
        if widened.op != "to_dtype":
            return None
        found.append(widened.args[0])
    large, small = sorted(found, key=lambda ref: -_points(inner, ref))
    return large, small


def _points(inner: Pass, ref: Ref) -> int:
    points = 1
    for axis in axes_behind(inner.body, ref):
        points *= int(axis.size)
    return points


class Product:
    """Writes the functions of one kernel."""

    def __init__(
        self, kernel: LoopKernel, tiling: Tiling, rows: int, factors: Sequence[tuple[Ref, Ref]], dtype: torch.dtype
    ) -> None:
        self.kernel, self.tiling, self.rows, self.factors, self.dtype = kernel, tiling, rows, factors, dtype
        x, r = tiling.group("x"), tiling.group("r")
        assert x is not None and r is not None
        self.axes: dict[str, tuple[Axis, ...]] = {"x": x.axes, "r": r.axes, "y": tiling.written_out}
        self.columns, self.inner = constant_size(x.numel), constant_size(r.numel)
        self.names = [i.args[0] for i in kernel.passes[0].body.instructions if i.op == "reduce"]
        itemsize = min(kernel.layouts[i.args[0]].dtype.itemsize for i in kernel.passes[0].body.loads())
        self.config, self.parts = config_table.tensor_core_product(self.columns, self.inner, len(self.names), itemsize, rows)
        self.block, self.step = self.config.constants["XBLOCK"], self.config.constants["RBLOCK"]
        self.whole_steps = self.inner % (self.step * self.parts) == 0

    @property
    def workspace(self) -> list[dict[str, str]]:
        """What parts leave for the second function: one float32 for each element of each product."""
        size = str(self.parts * self.rows * self.columns)
        return [{"dtype": "float32", "elements": size} for _ in self.names] if self.parts > 1 else []

    @property
    def grids(self) -> list[str]:
        """Blocks of each function."""
        blocks = -(-self.columns // self.block)
        return [str(blocks * self.parts), str(blocks)] if self.parts > 1 else [str(blocks)]

    def functions(self, narrow: bool) -> list[str]:
        """The texts."""
        head = [] if narrow else ["if WIDE:", "    pid = pid.to(tl.int64)"]
        products, after = self._products(narrow), self._after(narrow)
        if self.parts == 1:
            return [self._function(["pid = tl.program_id(0)", *head, *self._tile(), *products, *after])]
        parts = [f"part = tl.program_id(0) % {self.parts}", f"pid = tl.program_id(0) // {self.parts}"]
        first = [*parts, *head, *self._tile(), *products]
        first += [f"tl.store({self._place(n)}, acc{n}, {self._inside()})" for n in range(len(self.names))]
        second = ["pid = tl.program_id(0)", *head, *self._tile()]
        for n in range(len(self.names)):
            second += [f"acc{n} = tl.zeros([XBLOCK, YBLOCK], tl.float32)", f"for part in tl.static_range({self.parts}):"]
            second += [f"    acc{n} += tl.load({self._place(n)}, {self._inside()}, other=0)"]
        return [self._function(first), self._function([*second, *after])]

    def _place(self, number: int) -> str:
        return f"ws{number} + ((part * {self.rows} + y) * {self.columns} + x)"

    def _inside(self) -> str:
        return "xmask & ymask" if self.columns % self.block else "ymask"

    def _function(self, lines: Sequence[str]) -> str:
        pointers = [f"p{n}" for n in range(len(self.kernel.buffers))]
        header = function_header(pointers, [], ["XBLOCK", "YBLOCK", "RBLOCK"], workspace=self.parts > 1)
        workspace = "".join(f"ws{n}, " for n in range(len(self.names)))
        return header.replace("WORKSPACE", workspace) + "".join(f"    {line}\n" for line in lines)

    def _tile(self) -> list[str]:
        return [
            "x = pid * XBLOCK + tl.arange(0, XBLOCK)[:, None]",
            *([f"xmask = x < {self.columns}"] if self.columns % self.block else []),
            *positions(self.axes["x"], "x", PLAIN),
            "y = tl.arange(0, YBLOCK)[None, :]",
            f"ymask = y < {self.rows}",
            *positions(self.axes["y"], "y", PLAIN),
        ]

    def _writer(self, dims: tuple[str, str], along: str, prefix: str, narrow: bool) -> BodyWriter:
        """Of a tile with these dimensions; along: the variable of the inner dimension."""
        masks: dict[str, str | None] = {"x": "xmask" if self.columns % self.block else None, "y": "ymask"}
        masks["r"] = None if self.whole_steps else f"{along}mask"
        printer = IndexPrinter({}, {})
        writer = BodyWriter(Tile(dims, masks), printer, self.tiling.merged, narrow, prefix)
        for dim, axes in self.axes.items():
            for n, axis in enumerate(axes):
                name = along if dim == "r" else dim
                printer.names[axis.var] = name if len(axes) == 1 else f"{name}{n}"
                printer.ranges[axis.var] = (0, axis.size - 1)
                writer.symbol_dims[axis.var] = frozenset({dim})
        for n, buffer in enumerate(self.kernel.buffers):
            writer.pointers[buffer] = f"p{n}"
            writer.element[buffer] = self.kernel.layouts[buffer].dtype
        return writer

    def _products(self, narrow: bool) -> list[str]:
        """The loop over the inner dimension; its results are acc0, ..."""
        body = self.kernel.passes[0].body
        sides = [self._writer(("x", "r"), "r", "w", narrow), self._writer(("r", "y"), "q", "a", narrow)]
        before: list[str] = []
        texts: list[list[str]] = [[], []]
        for place, writer in enumerate(sides):
            writer.inner = True
            writer.enter_loop(before)
            for term in self.tiling.terms_of_step():
                self.tiling.merged.update(term)
                known: dict[int, Value | None] = {}
                texts[place] += [self._operand(writer, writer.run_one(body, f[place].position, known)) for f in self.factors]
            writer.leave_loop()
        steps = ["r = roff + tl.arange(0, RBLOCK)[None, :]", "q = roff + tl.arange(0, RBLOCK)[:, None]"]
        if not self.whole_steps:
            steps += ["rmask = r < rlast", "qmask = q < rlast"]
        steps += [
            *positions(self.axes["r"], "r", PLAIN),
            *positions(self.axes["r"], "q", PLAIN),
            *sides[0].lines,
            *sides[1].lines,
        ]
        for n, (large, small) in enumerate(zip(*texts, strict=True)):
            steps.append(f"acc{n % len(self.names)} = tl.dot({large}, {small}, acc{n % len(self.names)})")
        first, each = "0", -(-self.inner // (self.step * self.parts)) * self.step
        limits = [f"rlast = {self.inner}"]
        if self.parts > 1:
            first = "rfirst"
            limits = [f"rfirst = part * {each}", f"rlast = tl.minimum(rfirst + {each}, {self.inner})"]
        starts = [f"acc{n} = tl.zeros([XBLOCK, YBLOCK], tl.float32)" for n in range(len(self.names))]
        return [*limits, *starts, *before, f"for roff in range({first}, rlast, RBLOCK):", *(f"    {line}" for line in steps)]

    def _operand(self, writer: BodyWriter, value: Value) -> str:
        """A factor as tensor cores take it, with zeros in lanes past the end of the inner dimension."""
        whole = writer.full(value)
        mask = writer.tile.masks["r"]
        inside = whole if mask is None else f"tl.where({mask}, {whole}, 0.0)"
        return f"({inside}).to({HALF[self.dtype]})"

    def _after(self, narrow: bool) -> list[str]:
        """What is computed from the products."""
        writer = self._writer(("x", "y"), "r", "t", narrow)
        for n, name in enumerate(self.names):
            writer.locals[name] = Value(f"acc{n}", frozenset({"x", "y"}), torch.float32)
        for one in self.kernel.passes[1:]:
            writer.run(one.body)
            writer.end_pass()
        return writer.lines
