"""One function of a kernel as Triton source: pointwise, rows held in registers, or rows walked in a loop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...errors import InductorError
from ...ir.body import Instruction, LoopBody, Ref
from ...ir.cores import power_of_two
from ...schedule.plan import LoopKernel, Pass
from . import config as config_table
from . import sort
from .again import may_compute_again
from .body import BodyWriter, Tile, Value
from .exponentials import EXPONENTIALS, Exponentials, lane_of, largest_of, start_of, together
from .header import function_header
from .moments import MOMENTS, Lanes, combined, in_registers
from .parts import WHOLE, Partial, Parts
from .printer import IndexPrinter
from .reduction import NO_POSITION, SCAN_COMBINE, ReductionText, reduction_text, scan_text
from .shape import beside, blocks_of_columns, loading, loads_of_larger, products_of, read_once
from .text_rules import HELD, TRITON_TEXT
from .tiling import Group, Tiling, numel, positions

__all__ = ["Function"]

# Steps of a loop whose values one accumulator may add up; with more there are two levels of them.
CHAIN = 64
# Loads that wait in registers for a product.
_LOADED_AHEAD = 4
# Rows of a multiple of this many elements can be masked without splitting a 16-byte load.
_MASK_ALIGNMENT = 16


def _wide_product(kind: str, dtype: torch.dtype | None) -> bool:
    """Products of two elements near 1 lie near the middle between two floats, on a side that goes with their signs."""
    return kind == "prod" and dtype == torch.float32


def _position_text(pair: str, kind: str) -> str:
    """Of the tiles of values and of their positions: where along dimension 1 the first of the extreme values is."""
    return f"tl.reduce({pair}, 1, _{kind})[1][:, None]"


class Function:
    """Writes one Triton function of a kernel."""

    def __init__(
        self,
        kernel: LoopKernel,
        tiling: Tiling,
        shape: config_table.Shape,
        config: config_table.Config,
        names: dict[Any, str],
        narrow: bool,
        *,
        parts: Parts | None = None,
        combined: Parts = WHOLE,
        partials: list[Partial] | None = None,
        split: bool = False,
        told: bool = False,
    ) -> None:
        self.combined, self.split, self.told = combined, split, told
        self.kernel, self.tiling, self.shape, self.config, self.narrow = kernel, tiling, shape, config, narrow
        self.parts = parts.most if parts else 1
        self.products = products_of(kernel)
        self.partials = partials or []
        self.made: list[Partial] = []
        self.positions: dict[str, Value] = {}
        """The running extreme of a scan -> where it is."""
        self.blocks = blocks_of_columns(kernel)
        self.columns: dict[str, tuple[str, str]] = {}
        """What accumulates sums of columns -> the buffer in which they are kept, and where in a block's part of it."""
        self.lanes: dict[str, str] = {}
        """Where elements of a sorted row come from -> the same as 32 bits."""
        self.scanned = {i.args[0] for p in kernel.passes for i in p.body.instructions if i.op == "scan"}
        self.moments: dict[str, Sequence[str]] = {}
        """Value -> where its moments over the row are."""
        self.exponentials: dict[str, Sequence[str]] = {}
        """Value -> where its largest one in the row and the sum of exponentials are."""
        self.arguments = len({a for p in self.partials for a in p.arguments})
        """Workspace arguments so far."""
        self.looped = shape.looped
        self.printer = IndexPrinter(dict(names), {})
        dims = tuple(group.prefix for group in tiling.groups)
        masks: dict[str, str | None] = {d: f"{d}mask" for d in dims}
        if self._fills_blocks():
            masks["r"] = None
        if self.products and self._fills("x"):
            masks["x"] = None
        if tiling.jumps:
            masks = {d: None if self._fills(d) else mask for d, mask in masks.items()}
        self.writer = BodyWriter(Tile(dims, masks), self.printer, tiling.merged, narrow)
        self.writer.one_each = tiling.jumps
        if self.products:
            self.writer.once = read_once(kernel)
        if self.products and shape.itemsize == 1 and shape.kind != "product columns":
            self.writer.beside = beside(kernel, tiling)
        for n, buffer in enumerate(kernel.buffers):
            self.writer.pointers[buffer] = f"p{n}"
            self.writer.element[buffer] = kernel.layouts[buffer].dtype
        self.points = tiling.points()
        """Which points of the axes that are written out each block computes; `point` is the number of the one that is being written."""
        self.point = 0
        self.terms = tiling.terms_of_step()
        self.added: dict[tuple[int, str], list[Value]] = {}
        """What a step of a row adds to a sum, by the point and the sum."""
        self.local_values: list[dict[str, Value]] = [{} for _ in self.points]
        self.scratch_of: list[dict[str, tuple[LoopBody, int] | Value]] = [{} for _ in self.points]
        self.kept: dict[str, torch.dtype] = {}
        """Workspace arguments in which scratch is kept, in order."""
        self.again = self.looped and may_compute_again(kernel)
        self.pending: list[tuple[int, str, Value]] = []
        """What an inner pass has made, for which points."""

    @property
    def count(self) -> str:
        """The number of parts."""
        return str(self.parts) if self.combined.limits is None else "parts"

    def _fills_blocks(self) -> bool:
        """Whether rows have no lanes that are masked off."""
        rows = numel(self.tiling, "r")
        if not isinstance(rows, int) or not self.tiling.group("r"):
            return False
        if not self.looped:
            return rows == power_of_two(self.shape.inner)
        return bool(self.products) and self._fills("r", self.parts)

    def _fills(self, prefix: str, parts: int = 1) -> bool:
        """Whether a dimension is so many blocks, each as large as the others."""
        size, block = numel(self.tiling, prefix), self.config.constants[f"{prefix.upper()}BLOCK"]
        return isinstance(size, int) and size % (block * parts) == 0

    def write(self, start: int = 0, end: int | None = None) -> str:
        """The function for passes start to end; earlier passes only as far as their values are needed."""
        writer = self.writer
        writer.lines += self._prologue()
        end = len(self.kernel.passes) if end is None else end
        if self.products and self.parts == 1 and start == 0:
            self._load_ahead()
        if self.shape.kind == "product row" and self.shape.repeats:
            self._load_first()
        for n, one_pass in enumerate(self.kernel.passes[:end]):
            if n < start:
                self._replay(n, one_pass)
            elif one_pass.level == "outer":
                self._outer(one_pass, effects=True)
            else:
                self._inner(one_pass)
            writer.end_pass()
        lines = self._over_rows() if self.blocks else writer.lines
        blocks = [f"{g.prefix.upper()}BLOCK" for g in self.tiling.groups]
        header = function_header(
            [f"p{n}" for n in range(len(self.kernel.buffers) + len(self.kernel.numbers))],
            ["pid"] if self.told else [f"ks{n}" for n in range(len(self.kernel.sizes))],
            blocks,
            workspace=self.split,
        )
        return header + "".join(f"    {line}\n" for line in lines)

    # the tile

    def _prologue(self) -> list[str]:
        lines = [] if self.told else ["pid = tl.program_id(0)"]
        if not self.narrow:
            lines += ["if WIDE:", "    pid = pid.to(tl.int64)"]
        lines += [f"number{n} = tl.load(p{len(self.kernel.buffers) + n})" for n in range(len(self.kernel.numbers))]
        outer = [g for g in self.tiling.groups if g.prefix != "r"]
        if self.combined.limits is not None:
            lines.append(f"parts = {self.combined.text(self.printer, self.tiling, 'tl.minimum', 'tl.maximum')}")
        if self.parts > 1:
            lines += [f"part = pid % {self.count}", f"pid = pid // {self.count}"]
        x = self.tiling.group("x")
        assert x is not None
        if len(outer) == 2:
            lines += [f"xblocks = ({self.printer.text(x.numel)} + XBLOCK - 1) // XBLOCK"]
            lines += self._dimension(outer[0], "(pid // xblocks) * YBLOCK + ", "[:, None]")
            lines += self._dimension(outer[1], "(pid % xblocks) * XBLOCK + ", "[None, :]")
        elif self.blocks:
            self.before_rows, lines = [*lines, *self._dimension(self._rows, "", "[None, :]")], []
            return self._dimension(x, "xfirst + ", "[:, None]")
        else:
            lines += self._dimension(x, "pid * XBLOCK + ", "[:, None]" if len(self.tiling.groups) == 2 else "")
        r = self.tiling.group("r")
        if r is None:
            return lines
        if self.looped:
            lines.append("rbase = tl.arange(0, RBLOCK)[None, :]")
            self._variables(r)  # names and ranges only; the lines are written in each loop
        else:
            lines += self._dimension(r, "", "[None, :]")
        return lines

    def _over_rows(self) -> list[str]:
        """The lines written so far for one block of rows after the other, with accumulators of columns around them."""
        rows, step = numel(self.tiling, "x"), f"XBLOCK * {self.blocks}"
        assert isinstance(rows, int)
        in_blocks = rows > CHAIN * self.blocks * self.config.constants["XBLOCK"]
        starts: list[str] = []
        sums: list[str] = []
        stores: list[str] = []
        for acc, (buffer, place) in self.columns.items():
            starts.append(f"{acc} = tl.full({self.writer.tile.shape()}, 0, {HELD[self.writer.element[buffer]]})")
            sums.append(f"all_{acc} = all_{acc} + {acc}")
            found = f"tl.sum({f'all_{acc}' if in_blocks else acc}, 0)[None, :]"
            mask = self.writer.tile.masks["r"]
            where = f"{self.writer.pointers[buffer]} + (pid * {self.kernel.layouts[buffer].sizes[1]} + {place})"
            stores.append(f"tl.store({where}, {found}{f', {mask}' if mask else ''})")
        first, last = ("xblock", f"tl.minimum(xblock + {step} * {CHAIN}, {rows})") if in_blocks else ("pid * XBLOCK", str(rows))
        # Rows are loaded some steps ahead: not where a step loads what it has stored.
        text = "\n".join(self.writer.lines)
        again = any(f"tl.load({pointer} " in text for pointer in re.findall(r"tl\.store\((\w+) ", text))
        ahead = "" if again else f", num_stages={self.config.num_stages}"
        loop = [f"for xfirst in tl.range({first}, {last}, {step}{ahead}):", *(f"    {line}" for line in self.writer.lines)]
        if in_blocks:
            inside = [*starts, *loop, *sums]
            loop = [f"for xblock in range(pid * XBLOCK, {rows}, {step} * {CHAIN}):", *(f"    {line}" for line in inside)]
            starts = [f"all_{line}" for line in starts]
        return [*self.before_rows, *starts, *loop, *stores]

    @property
    def _rows(self) -> Group:
        rows = self.tiling.group("r")
        assert rows is not None
        return rows

    def _add_to_columns(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> None:
        """Rows past the last one add nothing."""
        buffer, index, value, _ = args
        acc = f"columns_{len(self.columns)}"
        self.columns[acc] = buffer, self.writer.index(index)[0]
        self.writer.lines.append(f"{acc} = {acc} + tl.where({self.writer.tile.masks['x']}, {self.writer.full(value)}, 0.0)")

    def _dimension(self, group: Group, start: str, suffix: str) -> list[str]:
        p = group.prefix
        lines = [f"{p} = {start}tl.arange(0, {p.upper()}BLOCK){suffix}"]
        if self.writer.tile.masks[p] or (p == "x" and self.split):
            lines.append(f"{p}mask = {p} < {self.printer.text(group.numel)}")
        return lines + self._variables(group)

    def _variables(self, group: Group) -> list[str]:
        """The axes of a group from its flat position."""
        p = group.prefix
        for n, (var, size) in enumerate(group.axes):
            self.printer.names[var] = p if len(group.axes) == 1 else f"{p}{n}"
            self.printer.ranges[var] = (0, size - 1)
            self.writer.symbol_dims[var] = frozenset({p})
        return positions(group.axes, p, self.printer)

    # passes

    def _load_ahead(self) -> None:
        """What is added to products, or scales them, is loaded before they are computed: its way from memory would else come after theirs."""
        known = set(self.writer.symbol_dims) | {a.var for a in self.tiling.written_out} | set(self.tiling.merged)

        def is_known(i: Instruction) -> bool:
            symbols = set().union(*(getattr(a, "free_symbols", ()) for a in i.args))
            return symbols <= known and (i.op != "load" or i.args[0] not in self.kernel.writes)

        left = _LOADED_AHEAD
        for body in (p.body for p in self.kernel.passes if p.level == "outer"):
            found = loading(body)
            inside = {a.position for n in found for a in body.instructions[n].args if isinstance(a, Ref)}
            for n in found:
                if left and n not in inside and body.instructions[n].op in ("load", "where"):
                    if all(is_known(body.instructions[m]) for m in body.behind(n)):
                        left -= 1
                        for _ in self._each_point():
                            self.writer.run_one(body, n, {})

    def _load_first(self) -> None:
        """The large matrices are on their way while what comes before the product is computed."""
        self.writer.inner = True
        for body in (p.body for p in self.kernel.passes if p.level == "inner"):
            dots = [i for i in body.instructions if i.op == "reduce" and i.args[1] == "dot"]
            for _ in self._each_term():
                for load in dict.fromkeys(n for i in dots for n in loads_of_larger(body, i)):
                    self.writer.run_one(body, load, {})
        self.writer.inner = False

    def _each_point(self) -> Iterator[None]:
        """Goes through the points: what is written then is for the one whose turn it is."""
        for number, places in enumerate(self.points):
            self.point = number
            self.tiling.merged.update(places)
            self.writer.locals = self.local_values[self.point]
            yield

    def _each_term(self) -> Iterator[None]:
        """Goes through what a step of a row adds up."""
        for places in self.terms:
            self.tiling.merged.update(places)
            yield

    @property
    def scratch(self) -> dict[str, tuple[LoopBody, int] | Value]:
        """What is kept of each element of a row, for the point that is being written."""
        return self.scratch_of[self.point]

    def _label(self, name: str) -> str:
        """A buffer's name in the names of variables, of their own for each point."""
        return re.sub(r"\W", "_", name) + (f"_{self.point}" if len(self.points) > 1 else "")

    def _outer(self, one_pass: Pass, effects: bool) -> None:
        writer = self.writer
        writer.inner, writer.on_effect = False, None
        mark = len(writer.lines)
        for _ in self._each_point():
            writer.run(one_pass.body, effects)
        if self.parts == 1 or not effects:
            return
        # Every part computes the values, the first one stores them.
        stores = [n for n in range(mark, len(writer.lines)) if writer.lines[n].startswith(("tl.store(", "tl.atomic_"))]
        for n in stores:
            writer.lines[n] = f"if part == 0: {writer.lines[n]}"

    def _replay(self, position: int, one_pass: Pass) -> None:
        """An earlier stage's pass: its values are computed again, or combined from the workspace."""
        if one_pass.level == "outer":
            self._outer(one_pass, effects=False)
            return
        made = {i.args[0] for i in one_pass.body.instructions if i.op == "reduce"}
        for _ in self._each_point():
            for i in one_pass.body.instructions:
                if i.op == "scratch_store":
                    self.scratch[i.args[0]] = (one_pass.body, i.args[2].position)
            for partial in self.partials:
                if partial.name in made and partial.point == self.point and partial.name not in self.scanned:
                    self._combine(partial)

    def _combine(self, partial: Partial) -> None:
        """A reduction's result from all parts' accumulators."""
        if partial.kind in MOMENTS:
            seen, mean, squares = (self._tile_of_parts(a, "0", dtype) for a, dtype in partial.arguments.items())
            found = combined(seen, "0.0", mean, squares, lambda text: self._of_row(text).text)
            self.writer.locals[partial.name] = Value(found[MOMENTS[partial.kind]], frozenset({"x"}), partial.dtype)
            return
        if partial.kind in EXPONENTIALS:
            starts = start_of(partial.dtype), "0"
            held = zip(partial.arguments.items(), starts, strict=True)
            top, total = (self._tile_of_parts(a, start, dtype) for (a, dtype), start in held)
            top, total = together(top, total, lambda text: self._of_row(text, partial.dtype).text)
            text = largest_of(top, total, partial.dtype) if partial.kind == "largest" else total
            self.writer.locals[partial.name] = self._of_row(text, partial.dtype)
            return
        if partial.kind in NO_POSITION:
            (value, dtype), (at, _) = partial.arguments.items()
            values = self._tile_of_parts(value, reduction_text(partial.kind, dtype).identity, dtype)
            pair = f"({values}, {self._tile_of_parts(at, NO_POSITION[partial.kind], torch.int64)})"
            self.writer.locals[partial.name] = self.writer.name(_position_text(pair, partial.kind), frozenset({"x"}), torch.int64)
            return
        texts = reduction_text(partial.kind, partial.dtype)
        (argument,) = partial.arguments
        tile_of_parts = self._tile_of_parts(argument, texts.identity, partial.dtype)
        result = self.writer.name(texts.across(tile_of_parts), frozenset({"x"}), partial.dtype)
        self.writer.locals[partial.name] = result

    def _tile_of_parts(self, argument: str, identity: str, dtype: torch.dtype, end: str = "parts") -> str:
        """What the parts before `end` have kept, the identity for others."""
        outer, beside = self.printer.text(numel(self.tiling, "x")), self.tiling.beside
        count = self.combined.most * beside
        lanes = f"tl.arange(0, {power_of_two(count)})[None, :]"
        inside = f"xmask & ({lanes} < {end})" if end != "parts" or self.combined.limits else "xmask"
        place = f"{lanes} * ({outer}) + x"
        if beside > 1:  # those of a row's neighbours that are one row with it too
            place = f"({lanes} // {beside}) * ({outer}) + (x // {beside}) * {beside} + {lanes} % {beside}"
            inside = inside if count == power_of_two(count) else f"xmask & ({lanes} < {count})"
        load = f"tl.load({argument} + ({place}), {inside}, other={identity})"
        return self.writer.name(load, frozenset({"x"}), dtype).text

    def _of_row(self, text: str, dtype: torch.dtype = torch.float32) -> Value:
        return self.writer.name(text, frozenset({"x"}), dtype)

    def _inner(self, one_pass: Pass) -> None:
        writer = self.writer
        writer.inner, writer.on_effect = True, self._effect
        self.pending = []
        if self.looped:
            self._loop(one_pass)
        else:
            for _ in self._each_point():
                for _ in self._each_term():
                    writer.run(one_pass.body)
        for point, name, result in self.pending:
            self.local_values[point][name] = result
        writer.inner = False

    def _loop(self, one_pass: Pass) -> None:
        writer = self.writer
        before: list[str] = []
        outside, writer.lines = writer.lines, []
        self.before_loop = before
        self.after_loop: list[str] = []
        self.before_block: list[str] = []
        self.after_block: list[str] = []
        writer.enter_loop(before)
        known = set(self.exponentials)
        for _ in self._each_point():
            for i in one_pass.body.instructions:
                if i.op == "scratch_load":  # computed again, before a store may overwrite what they are computed from
                    self._scratch_load(i, i.args, one_pass.body)
        for _ in self._each_point():
            for _ in self._each_term():
                writer.run(one_pass.body)
        writer.leave_loop()
        r = self.tiling.group("r")
        assert r is not None
        rnumel = self.printer.text(r.numel)
        variables = self._variables(r)
        first, last = "0", rnumel
        if self.parts > 1:
            each = f"(({rnumel} + RBLOCK * {self.count} - 1) // (RBLOCK * {self.count})) * RBLOCK"
            outside.append(f"rfirst = part * {each}")
            outside.append(f"rlast = tl.minimum(rfirst + {each}, {rnumel})")
            first, last = "rfirst", "rlast"
        loops: list[str] = []
        masked, unmasked = f"rmask = r < {rnumel}", "rmask = tl.full([1, RBLOCK], True, tl.int1)"
        aligned = isinstance(r.numel, int) and r.numel % _MASK_ALIGNMENT == 0
        if writer.tile.masks["r"] is None:
            loops += self._blocks(first, last, unmasked, variables)
        elif self.tiling.contiguous == "r" and (not aligned or self.exponentials.keys() - known):
            # A mask that ends anywhere keeps loads from being wide, and one more instruction an element counts: whole steps go without.
            outside.append(f"rwhole = {first} + (({last} - {first}) // RBLOCK) * RBLOCK")
            loops += self._blocks(first, "rwhole", unmasked, variables)
            loops += [*self.before_block, *self._steps("rwhole", last, masked, variables), *self.after_block]
        else:
            loops += self._blocks(first, last, masked, variables)
        writer.lines = [*outside, *before, *loops, *self.after_loop]

    def _blocks(self, first: str, last: str, mask: str, variables: list[str]) -> list[str]:
        """The loop over part of a row, in blocks of CHAIN steps if accumulators ask for them."""
        if not self.before_block:
            return self._steps(first, last, mask, variables)
        steps = self._steps("rstart", f"tl.minimum(rstart + RBLOCK * {CHAIN}, {last})", mask, variables)
        inside = [*self.before_block, *steps, *self.after_block]
        return [f"for rstart in range({first}, {last}, RBLOCK * {CHAIN}):", *(f"    {line}" for line in inside)]

    def _steps(self, first: str, last: str, mask: str, variables: list[str]) -> list[str]:
        """The loop over part of a row."""
        head = ["r = roff + rbase", mask, *variables]
        stages = self.config.num_stages
        # Of loads that no tensor cores wait for, Triton takes some ahead only where it is told to.
        steps = f"tl.range({first}, {last}, RBLOCK, num_stages={stages})" if self.products and stages > 1 else None
        return [
            f"for roff in {steps or f'range({first}, {last}, RBLOCK)'}:",
            *(f"    {line}" for line in [*head, *self.writer.lines]),
        ]

    def _many_steps(self) -> bool:
        """Whether one accumulator would add up more than CHAIN values."""
        row = numel(self.tiling, "r")
        step = self.config.constants["RBLOCK"] * self.parts
        return not isinstance(row, int) or row > CHAIN * step

    # effects of inner passes

    def _effect(self, writer: BodyWriter, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value | None:
        table = {
            "reduce": self._reduce,
            "scan": self._scan,
            "store": self._add_to_columns,
            "argsort": self._argsort,
            "take_along": self._take_along,
            "scanned_position": lambda i, args, body: self.positions[args[0].text],
            "scratch_store": self._scratch_store,
            "scratch_load": self._scratch_load,
        }
        return table[i.op](i, args, body)

    def _reduce(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> None:
        name, kind, value = args[:3]
        if kind in NO_POSITION:
            self._reduce_position(name, kind, value, args[3])
            return
        if kind in MOMENTS:
            self._reduce_moments(name, kind, value)
            return
        if kind in EXPONENTIALS:
            self._reduce_exponentials(name, kind, value, body, i.args[2])
            return
        if kind == "dot":
            kind, value = "sum", self._times(value, args[3])
        if len(self.terms) > 1:
            added = self.added.setdefault((self.point, name), [])
            added.append(value)
            if len(added) < len(self.terms):
                return
            value = self._sum(added)
        texts = reduction_text(kind, value.dtype)
        if self.looped:
            self._accumulate(name, kind, value)
            return
        inside = self._where_inside(value, texts.identity, texts.held, self._lanes(value))
        result = self.writer.name(texts.across(inside), self._lanes(value) - {"r"}, value.dtype)
        self._made(name, result)

    def _made(self, name: str, result: Value) -> None:
        self.pending.append((self.point, name, result))

    def _sum(self, values: Sequence[Value]) -> Value:
        total = values[0]
        for value in values[1:]:
            total = self.writer.name(
                TRITON_TEXT["add"]((total.text, value.text), total.dtype), total.dims | value.dims, total.dtype
            )
        return total

    def _times(self, a: Value, b: Value) -> Value:
        return self.writer.name(TRITON_TEXT["mul"]((a.text, b.text), a.dtype), a.dims | b.dims, a.dtype)

    def _lanes(self, value: Value) -> frozenset[str]:
        """The dimensions of what accumulates a value. Beside a product, what does not depend on its columns is computed once a block."""
        return value.dims | {"r"} if self.products else frozenset(self.writer.tile.dims)

    def _where_inside(self, value: Value, identity: str, held: str, dims: frozenset[str] | None = None) -> str:
        """The value over dimensions of the tile (None: all), with the identity in lanes past the end of the row."""
        full = self.writer.full(value, dims)
        mask = self.writer.tile.masks["r"]
        if mask is None:
            return full
        return f"tl.where({mask}, {full}, tl.full([], {identity}, {held}))"

    def _accumulate(self, name: str, kind: str, value: Value) -> None:
        texts = reduction_text(kind, value.dtype)
        acc = f"acc_{self._label(name)}"
        lanes = self._lanes(value)
        start = f"{acc} = tl.full({self.writer.tile.shape(lanes)}, {texts.identity}, {texts.held})"
        lane = texts.lane(acc, self.writer.full(value, lanes))
        inside = self.writer.tile.masks["r"]
        self.writer.lines.append(f"{acc} = {lane}" if inside is None else f"{acc} = tl.where({inside}, {lane}, {acc})")
        whole = acc
        if kind == "sum" and value.dtype.is_floating_point and self._many_steps():
            whole = f"all_{acc}"
            self.before_block.append(start)
            self.after_block.append(f"{whole} = {texts.lane(whole, acc)}")
            start = f"all_{start}"
        self.before_loop.append(start)
        result = f"red_{self._label(name)}"
        self.after_loop.append(f"{result} = {texts.across(whole)}")
        if self.parts > 1:
            self.made.append(Partial(name, self.point, value.dtype, kind, {self._kept(result): value.dtype}))
        self._made(name, Value(result, lanes - {"r"}, value.dtype))

    def _reduce_moments(self, name: str, kind: str, value: Value) -> None:
        full, dims = self.writer.full(value), frozenset({"x"})
        if not self.looped:
            count = self.printer.text(numel(self.tiling, "r"))
            mean = self._of_row(in_registers(full, self.writer.tile.masks["r"], "", count)[0])
            squares = in_registers(full, self.writer.tile.masks["r"], mean.text, count)[1]
            self._made(name, mean if kind == "mean" else self._of_row(squares))
            return
        if value.text not in self.moments:
            lanes = Lanes(self._label(name), blocks=self._many_steps())
            shapes = self.writer.tile.shape(), self.writer.tile.shape(frozenset({"r"}))
            self.before_loop += lanes.before(*shapes)
            if lanes.blocks:
                self.before_block += lanes.before_block(*shapes)
                self.after_block += lanes.after_block()
            self.writer.lines += lanes.inside(full)
            lines, names = lanes.after()
            self.after_loop += lines
            self.moments[value.text] = tuple(map(self._kept, names)) if self.parts > 1 else names
        found = self.moments[value.text]
        if self.parts > 1:
            self.made.append(Partial(name, self.point, torch.float32, kind, dict.fromkeys(found, torch.float32)))
        else:
            self._made(name, Value(found[MOMENTS[kind]], dims, torch.float32))

    def _reduce_exponentials(self, name: str, kind: str, value: Value, body: LoopBody, ref: Ref) -> None:
        if value.text not in self.exponentials:
            loads = [i.args[0] for n in body.behind(ref.position) if (i := body.instructions[n]).op == "load"]
            itemsizes = (self.kernel.layouts[buffer].dtype.itemsize for buffer in loads)
            lanes = Exponentials(self._label(name), value.dtype, lane_of(itemsizes, self.config.constants["RBLOCK"]))
            whole = "all_" if self._many_steps() else ""
            self.before_loop += lanes.start(whole)
            if whole:
                self.before_block += lanes.start()
                self.after_block += lanes.after_block()
            self.writer.lines += lanes.inside(self.writer.full(value), self.writer.tile.masks["r"])
            lines, names = lanes.after(whole)
            self.after_loop += lines
            self.exponentials[value.text] = tuple(map(self._kept, names)) if self.parts > 1 else names
        found = self.exponentials[value.text]
        if self.parts > 1:
            self.made.append(Partial(name, self.point, value.dtype, kind, dict.fromkeys(found, value.dtype)))
            return
        result = found[EXPONENTIALS[kind]]
        if kind == "largest":
            result = f"red_{self._label(name)}"
            self.after_loop.append(f"{result} = {largest_of(found[0], found[1], value.dtype)}")
        self._made(name, Value(result, frozenset({"x"}), value.dtype))

    def _kept(self, result: str) -> str:
        """The workspace argument in which a part's result is kept."""
        argument = f"ws{self.arguments}"
        self.arguments += 1
        outer = self.printer.text(numel(self.tiling, "x"))
        self.after_loop.append(f"tl.store({argument} + (part * ({outer}) + x), {result}, xmask)")
        return argument

    def _reduce_position(self, name: str, kind: str, value: Value, index: Value) -> None:
        if value.dtype == torch.bool:
            value = Value(f"{value.text}.to(tl.int32)", value.dims, torch.int32)
        texts = reduction_text(kind, value.dtype)
        combine = f"_{kind}"
        if not self.looped:
            v = self._where_inside(value, texts.identity, texts.held)
            j = self._where_inside(index, NO_POSITION[kind], "tl.int64")
            self._made(name, self.writer.name(_position_text(f"({v}, {j})", kind), frozenset({"x"}), torch.int64))
            return
        acc, at, shape = f"acc_{self._label(name)}", f"at_{self._label(name)}", self.writer.tile.shape()
        self.before_loop.append(f"{acc} = tl.full({shape}, {texts.identity}, {texts.held})")
        self.before_loop.append(f"{at} = tl.full({shape}, {NO_POSITION[kind]}, tl.int64)")
        self.writer.lines += [
            f"new_{acc}, new_{at} = {combine}({acc}, {at}, {self.writer.full(value)}, {self.writer.full(index)})",
            f"{acc} = tl.where(rmask, new_{acc}, {acc})",
            f"{at} = tl.where(rmask, new_{at}, {at})",
        ]
        result = f"red_{self._label(name)}"
        if self.parts == 1:
            self.after_loop.append(f"{result} = {_position_text(f'({acc}, {at})', kind)}")
            self._made(name, Value(result, frozenset({"x"}), torch.int64))
            return
        pair = f"best_{self._label(name)}, {result}"
        self.after_loop.append(f"{pair} = tl.reduce(({acc}, {at}), 1, {combine})")
        arguments = {
            self._kept(f"{text}[:, None]"): t for text, t in zip(pair.split(", "), (value.dtype, torch.int64), strict=True)
        }
        self.made.append(Partial(name, self.point, torch.int64, kind, arguments))

    def _scan(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        name, kind, value = args[:3]
        assert i.dtype is not None
        if kind in NO_POSITION:
            return self._scan_position(name, kind, value, args[3])
        texts = reduction_text(kind, value.dtype)
        inside = self._where_inside(value, texts.identity, texts.held)
        narrowed = ""
        if _wide_product(kind, value.dtype):
            texts, inside, narrowed = reduction_text(kind, torch.float64), f"({inside}).to(tl.float64)", ".to(tl.float32)"
        running = self.writer.name(scan_text(kind, inside), frozenset(self.writer.tile.dims), i.dtype)
        if not self.looped:
            return Value(f"{running.text}{narrowed}", running.dims, i.dtype)
        carry = f"carry_{self._label(name)}"
        self.before_loop.append(f"{carry} = {self._before_part(name, texts)}")
        result, total = f"scan_{self._label(name)}", texts.across(inside)
        if kind != "sum" or not value.dtype.is_floating_point:
            self.writer.lines += [f"{result} = {texts.lane(carry, running.text)}", f"{carry} = {texts.lane(carry, total)}"]
            return Value(f"{result}{narrowed}", frozenset(self.writer.tile.dims), i.dtype)
        # What the carry loses by rounding is kept beside it.
        lost = f"lost_{self._label(name)}"
        self.before_loop.append(f"{lost} = tl.full({self.writer.tile.shape(frozenset({'x'}))}, 0, {texts.held})")
        self.writer.lines += [
            f"{result} = {carry} + ({running.text} + {lost})",
            f"more_{carry} = {total} + {lost}",
            f"new_{carry} = {carry} + more_{carry}",
            f"part_{carry} = new_{carry} - {carry}",
            f"{lost} = ({carry} - (new_{carry} - part_{carry})) + (more_{carry} - part_{carry})",
            f"{lost} = tl.where({lost} == {lost}, {lost}, 0)",
            f"{carry} = new_{carry}",
        ]
        return Value(result, frozenset(self.writer.tile.dims), i.dtype)

    def _scan_position(self, name: str, kind: str, value: Value, index: Value) -> Value:
        """The running extreme; where it is, is found by it in `positions`."""
        dtype, dims, label = value.dtype, frozenset(self.writer.tile.dims), self._label(name)
        if dtype == torch.bool:
            value = Value(f"{value.text}.to(tl.int32)", value.dims, torch.int32)
        texts, place = reduction_text(kind, value.dtype), torch.int32 if self.narrow else torch.int64
        index = Value(f"{index.text}.to({HELD[place]})", index.dims, place)
        v = self.writer.name(self._where_inside(value, texts.identity, texts.held), dims, value.dtype).text
        j = self.writer.name(self._where_inside(index, NO_POSITION[kind], HELD[place]), dims, place).text
        best, at, carry, carry_at = (f"{word}_{label}" for word in ("best", "at", "carry", "carry_at"))
        self.writer.lines.append(f"{best}, {at} = {scan_text(kind, f'({v}, {j})')}")
        if self.looped:
            then = f"{SCAN_COMBINE[kind]}({carry}, {carry_at},"
            self.before_loop += self._extreme_before_part(name, kind, texts, (carry, carry_at), place)
            self.writer.lines += [
                f"total_{best}, total_{at} = tl.reduce(({v}, {j}), 1, _{kind})",
                f"{best}, {at} = {then} {best}, {at})",
                f"{carry}, {carry_at} = {then} total_{best}[:, None], total_{at}[:, None])",
            ]
        found = Value(f"({best} != 0)" if dtype == torch.bool else best, dims, dtype)
        self.positions[found.text] = Value(f"{at}.to(tl.int64)", dims, torch.int64)
        return found

    def _extreme_before_part(
        self, name: str, kind: str, texts: ReductionText, carry: tuple[str, str], place: torch.dtype
    ) -> list[str]:
        """The lines for the extreme of what lies before a part, and its position."""
        partial, shape = self._totals(name), self.writer.tile.shape(frozenset({"x"}))
        starts = ((carry[0], texts.identity, texts.held), (carry[1], NO_POSITION[kind], HELD[place]))
        if partial is None:
            return [f"{c} = tl.full({shape}, {identity}, {held})" for c, identity, held in starts]
        earlier = [
            f"{self._tile_of_parts(argument, identity, dtype, 'part')}.to({held})"
            for (argument, dtype), (_, identity, held) in zip(partial.arguments.items(), starts, strict=True)
        ]
        return [f"{', '.join(carry)} = tl.reduce(({', '.join(earlier)}), 1, _{kind})", *(f"{c} = {c}[:, None]" for c in carry)]

    def _totals(self, name: str) -> Partial | None:
        """The totals of a scan's parts, where it has parts."""
        return next((p for p in self.partials if p.name == name and p.point == self.point), None)

    def _before_part(self, name: str, texts: ReductionText) -> str:
        """What has been added up where a part of a scan begins."""
        partial = self._totals(name)
        if partial is None:
            return f"tl.full({self.writer.tile.shape(frozenset({'x'}))}, {texts.identity}, {texts.held})"
        (argument,) = partial.arguments
        earlier = texts.across(self._tile_of_parts(argument, texts.identity, partial.dtype, "part"))
        return f"({earlier}).to({texts.held})"

    def _argsort(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        value, descending = args
        text = sort.argsort_text(self.writer.full(value), value.dtype, descending, self.writer.tile.masks["r"])
        lane = self.writer.name(text, frozenset(self.writer.tile.dims), torch.int32)
        place = Value(f"{lane.text}.to(tl.int64)", lane.dims, torch.int64)
        self.lanes[place.text] = lane.text
        return place

    def _take_along(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        value, place = args
        text = sort.take_text(self.writer.full(value), value.dtype, self.lanes[place.text])
        return self.writer.name(text, frozenset(self.writer.tile.dims), value.dtype)

    def _scratch_store(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> None:
        name, _, value = args
        if self.looped and not self.again:
            argument = f"ws{len(self.kept)}"
            self.kept[argument] = value.dtype
            self.writer.lines.append(f"tl.store({argument} + ({self._place()}), {self.writer.full(value)}, xmask & rmask)")
            self.scratch[name] = Value(argument, frozenset(self.writer.tile.dims), value.dtype)
            return
        self.scratch[name] = (body, i.args[2].position) if self.looped else value

    def _place(self) -> str:
        """The position of a row's element in the workspace."""
        return f"x * ({self.printer.text(numel(self.tiling, 'r'))}) + r"

    def _scratch_load(self, i: Instruction, args: tuple[Any, ...], body: LoopBody) -> Value:
        kept = self.scratch.get(args[0])
        if kept is None:
            raise InductorError(f"Triton kernel: scratch {args[0]!r} is read before the pass that keeps it")
        if isinstance(kept, Value) and kept.text in self.kept:
            self.before_loop.append("tl.debug_barrier()")
            return self.writer.name(f"tl.load({kept.text} + ({self._place()}), xmask & rmask)", kept.dims, kept.dtype)
        if isinstance(kept, Value):
            return kept
        # A row that does not fit into registers: compute the value again.
        return self.writer.run_one(kept[0], kept[1], {})
