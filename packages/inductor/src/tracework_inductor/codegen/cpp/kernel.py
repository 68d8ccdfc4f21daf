"""LoopKernel to C++: loop nests, straight-line bodies, accumulators.

Shapes of nests, chosen by `shape`:
- points: no reduction axes; the innermost axis is the vector loop, outer ones may be split over threads (in tiles: see tiles.py).
- rows: for each point the inner passes are vector loops over the reduction axes.
- columns: the reduced axis is strided but the last outer axis is contiguous, so a block of points is the vector loop and
  every value of a point becomes an array over the block.
- few rows: products of a few rows with a large matrix, see few_rows.py.

Sums of floats are taken in blocks, see blocks.py, reductions of rows in lanes, see rows.py, sums of columns beside rows, see column_sums.py;
running sums in groups of steps, see scans.py.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...errors import RenderError
from ...ir.body import Axis, Instruction, LoopBody
from ...ir.index import Expr, Size, constant_product, product, substitute, symbol
from ...ir.scalar_ops import COLUMNS, SCALAR_OPS, compute_dtype
from ...schedule.plan import LoopKernel, Pass, index_checks
from ..printer import c_index
from ..renderer import KERNEL_NAME, RenderedKernel
from .ahead import next_rows, rows_looked_up_next
from .blocks import CHAIN, VECTOR, Cut, Sum, cut, in_lanes
from .column_sums import kept_sums, open_row_blocks
from .few_rows import HEAD, few_rows, few_rows_nest, large_matrices
from .parts import has_parts, open_groups, write_group
from .peeling import ONE_BY_ONE, Peeled, done_once, peeled, rows_put
from .put_rows import write_put_rows
from .reuse import kept_rows
from .row_values import computed_ahead
from .rows import POSITIONS, dtype_of, in_whole_lanes, row_in_lanes
from .scans import carried, in_groups, scan_in_groups
from .segments import Segment, segments
from .shares import row_in_shares, shares_of
from .statements import STATEMENTS
from .streams import (
    SHORTEST,
    NextRow,
    ask_for_row,
    close_blocks,
    close_copied,
    close_row,
    in_no_cache,
    open_blocks,
    open_copied,
    open_row,
    part_of,
    rows_ahead,
    streamed,
    streaming,
)
from .text_rules import CPP_TEXT, CPP_TYPES, MEMORY_TYPES, REDUCTIONS, SIMD
from .tiles import ACROSS, LENGTH, WIDTH, Access, Tiling, tiling

BLOCK = 128
"""Points per block of a "columns" nest that walks its columns once."""
AGAIN = 64
"""Of one that walks them again while they lie in the second-level cache, and brings the next block's there meanwhile."""
CACHED = 1 << 19
"""Bytes of it."""
WHOLE = 1024
"""Points of a block that has all columns: what is read again lies in one piece there."""
KEPT = 1 << 19
"""Bytes of what a block keeps between passes, at most: they are on the stack."""
CHUNKS = 64
"""Steps around an axis that are enough for the threads."""


class Writer:
    """Lines with indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        """One line."""
        self.lines.append("  " * self.depth + text)

    def open(self, text: str = "") -> None:
        """A line that begins a block."""
        self.line(f"{text} {{".lstrip())
        self.depth += 1

    def close(self) -> None:
        """Ends a block."""
        self.depth -= 1
        self.line("}")


class CppKernel:
    """Writes one kernel."""

    def __init__(self, kernel: LoopKernel, grain: int) -> None:
        self.kernel = kernel
        self.grain = grain
        self.w = Writer()
        self.names = {b: f"p{n}" for n, b in enumerate(kernel.buffers)}
        self.locals: dict[str, tuple[str, torch.dtype]] = {}
        self.scratch = {s.name: f"row{n}" for n, s in enumerate(kernel.scratch)}
        self.tiles: dict[Access, str] = {}
        self.rows_of: dict[
            str, tuple[str, Size]
        ] = {}  # what is computed as a whole row first: the row's array, and where it begins
        self.indexed: dict[Any, Size] = {}  # computed positions -> the sizes that they lie below, where these may be 0
        self.block = 1  # points of which what is kept for a row lies side by side
        self.terms = ""  # where a reduction stores its element in the terms of its lanes, instead of combining it
        self.one_by_one = False  # whether places are looked for in the first of the lanes
        self.apart = False  # whether the terms of scans are stored instead of added up
        self.lane = ""  # the place of a scan's value in the terms of a group of steps
        self.checks = {check: n for n, check in enumerate(index_checks(kernel))}
        self.atomic = any(i.args[3] not in ("set", COLUMNS) for p in kernel.passes for i in p.body.stores())
        self.scatters = any(_scatters(p) for p in kernel.passes)
        self.counter = 0
        self.nest = shape(kernel)
        innermost = (kernel.axes if self.nest == "columns" else kernel.reduction_axes or kernel.axes)[-1:]
        self.past_caches = any(streaming(kernel, a) for a in innermost) and not (self.atomic or self.scatters)
        self.region = False  # whether the loop of the threads is in a region at whose end each waits for its stores

    def render(self) -> RenderedKernel:
        """The function's text."""
        parameters = [f"{MEMORY_TYPES[self.kernel.layouts[b].dtype]}* {n}" for b, n in self.names.items()]
        parameters += [f"const int64_t* {s}_at" for s in self.kernel.numbers]
        parameters += [f"int64_t {s}" for s in self.kernel.sizes]
        for s in self.kernel.numbers:
            self.w.line(f"const int64_t {s} = *{s}_at;")
        if self.checks:
            self.w.line("int bad = 0;")
        SHAPES[self.nest](self)
        if self.past_caches:
            self.w.line("tw_fence();")
        if self.region:
            self.w.close()
        if self.checks:
            self.w.line("return bad;")
        result = "int32_t" if self.checks else "void"
        head = f'extern "C" {result} {KERNEL_NAME}({", ".join(parameters)}) {{'
        signature = ("*",) * (len(self.names) + len(self.kernel.numbers)) + ("i64",) * len(self.kernel.sizes)
        launch: tuple[tuple[str, Any], ...] = (("result", "i32"),) if self.checks else ()
        if matrices := large_matrices(self.kernel):
            launch = (*launch, ("matrices", matrices))
        before = [HEAD] if self.nest == "few rows" else []
        return RenderedKernel("\n".join([*before, head, *self.w.lines, "}"]), signature, launch)

    # nests

    def points(self) -> None:
        """No reduction: one straight-line body under all axes."""
        axes = self.kernel.axes
        if (put := rows_put(self.kernel)) is not None:
            write_put_rows(self, *put, self._is_large())
            return
        simd = self.vectorises(self.kernel.passes)
        if not axes:
            self._passes_body(self.kernel.passes)
            return
        parallel = self._parallel(len(axes) == 1)
        tiles = tiling(self.kernel) if simd else None
        if tiles is not None:
            self._tiled_points(tiles, parallel)
            return
        if len(axes) == 1:
            self._innermost(simd, parallel)
            return
        if simd and (parts := segments(self.kernel)) is not None:
            position, found_parts = parts
            if not parallel or position == len(axes) - 1 or constant_product(a.size for a in axes[:position]) >= CHUNKS:
                self._segmented(position, found_parts, parallel)
                return
            if all(part.steps > 1 for part in found_parts):
                for part in found_parts:
                    self._segment_alone(position, part)
                return
        loops = self._outer_loops(axes[:-1], parallel)
        if simd and (found := peeled(self.kernel)) is not None:
            row = open_row(self, axes[-1])
            self._peeled_loop(found, axes[-1])
            close_row(self, row)
        else:
            self._innermost(simd, False)
        for _ in range(loops):
            self.w.close()

    def _innermost(self, simd: bool, parallel: bool) -> None:
        """The innermost loop of a nest without reductions."""
        axis = self.kernel.axes[-1]
        stores = [i for p in self.kernel.passes for i in streamed(self.kernel, p, axis)] if simd else []
        copies: list[str] = []
        near = [] if not simd or parallel else next_rows(self.kernel, self.kernel.passes[0].body)
        if simd and len(self.kernel.passes) == 1 and has_parts(body := self.kernel.passes[0].body, axis):
            self._in_groups(axis, body, stores, parallel, near)
            return

        def begin() -> None:
            if stores:
                copies.extend(open_blocks(self, axis, stores, parallel, None, near))
                return
            ask_for_row(self, near, axis)
            if parallel:
                self.parallel_for(1, simd)
            elif simd:
                self.w.line(SIMD + self.bad_clause())
            self.loop(axis)

        found = done_once(self.kernel) if simd else None
        if found is not None:
            self.w.open()
            near += rows_looked_up_next(self, *found)
            self.statements(found[0].instructions, {}, loop=(found[1], begin))
        else:
            begin()
            self._passes_body(self.kernel.passes)
        if stores:
            close_blocks(self, stores, copies)
        else:
            self.w.close()
        if found is not None:
            self.w.close()

    def _in_groups(
        self, axis: Axis, body: LoopBody, stores: list[Instruction], parallel: bool, ahead: Sequence[NextRow] = ()
    ) -> None:
        """An innermost loop without reductions, whose body is written in parts."""
        if stores:
            copies = open_blocks(self, axis, stores, parallel, None, ahead, True)
        else:
            ask_for_row(self, ahead, axis)
            if parallel:
                self.parallel_for(1)
            open_groups(self, axis)
        write_group(self, body, axis)
        if stores:
            close_blocks(self, stores, copies)
        else:
            self.w.close()

    def _segmented(self, position: int, parts: list[Segment], parallel: bool) -> None:
        """A nest one axis of which is walked in segments, each with a body of its own."""
        *axes, last = self.kernel.axes
        loops = self._outer_loops(axes[:position], parallel)
        short = position == len(axes) and any(part.steps < SHORTEST for part in parts)
        row = open_row(self, last) if short else []
        for part in parts:
            inside = axes[position + 1 :]
            if position == len(axes):
                self._segment(part, last, (part.first, part.steps))
                continue
            if part.steps == 1:
                self.w.open()
            else:
                self.loop(axes[position], str(part.first), str(part.steps))
            for a in inside:
                self.loop(a)
            self._segment(part, last, None)
            for _ in range(len(inside) + 1):
                self.w.close()
        close_row(self, row)
        for _ in range(loops):
            self.w.close()

    def _segment_alone(self, position: int, part: Segment) -> None:
        """A nest of its own for a segment: there are too few steps around its axis for the threads."""
        *axes, last = self.kernel.axes
        self.parallel_for(position + 1)
        for a in axes[:position]:
            self.loop(a)
        self.loop(axes[position], str(part.first), str(part.steps))
        for a in axes[position + 1 :]:
            self.loop(a)
        self._segment(part, last, None)
        for _ in axes:
            self.w.close()

    def _segment(self, part: Segment, last: Axis, steps: tuple[int, int] | None) -> None:
        """The innermost loop of a segment, over all of the axis or a first step and so many."""
        count = steps[1] if steps else last.size
        is_known = isinstance(count, int) and not self.rows_of
        stores = part_of(self.kernel, self.kernel.passes[0], part.body, last, count) if is_known else []
        if stores:
            copies = open_blocks(self, last, stores, False, steps)
        else:
            self.w.line(SIMD + self.bad_clause())
            self.loop(last, *(str(n) for n in steps or ()))
        self.statements(part.body.instructions, {})
        if stores:
            close_blocks(self, stores, copies)
        else:
            self.w.close()

    def _peeled_loop(self, found: Peeled, last: Axis) -> None:
        """The innermost loop in two: over what has no conditions, and over the steps at the ends. Where some mask does not hold, another loop.

        The first goes by groups, the last of which begins where it ends with the others: what is left of a row would run as scalars, where
        g++ makes a branch of each choice. What is read in larger steps is copied to a small array ahead of each group."""
        axis, group = found.axis, found.group
        start = symbol(f"{axis.var}s", 0, None)
        masks = " & ".join(f"v{self.counter}_{m.position}" for m in found.masks)
        turned: list[str] = []
        for n, i in enumerate(found.strided()):
            buffer, index, _ = i.args
            self.tiles["load", buffer, index] = f"t{n}[{axis.var}k]"
            turned.append(f"{MEMORY_TYPES[self.kernel.layouts[buffer].dtype]} t{n}[{group}] __attribute__((aligned(64)));")
            first = c_index(substitute(index, {axis.var: start}))
            turned.append(f"tw_every<{index.coefficient(axis.var)}, {group}>(&{self.names[buffer]}[{first}], t{n});")

        def begin() -> None:
            if masks:
                self.w.open(f"if ({masks})")
            self.w.open(f"for (int64_t {axis.var}b = 0; {axis.var}b < {axis.size}; {axis.var}b += {group})")
            self.w.line(f"const int64_t {start} = tw_imin({axis.var}b, {axis.size - group});")
            for line in turned:
                self.w.line(line)
            self.w.line(SIMD + self.bad_clause())
            self.loop(axis, str(start), str(group))

        self.w.open()
        self.statements(found.body.instructions, {}, loop=(found.ahead, begin))
        self.w.close()
        self.w.close()
        self.tiles.clear()
        if found.otherwise is None:
            self.w.close()
            self._ends(found, last)
            return
        self._ends(found, last)
        self.w.close()
        self.w.open("else")
        self._peeled_loop(found.otherwise, last)
        self.w.close()
        self.w.close()

    def _ends(self, found: Peeled, last: Axis) -> None:
        """The steps of an axis that are not among those of the loop before."""
        if not (ends := last.size - found.steps):
            return
        self.w.line("#pragma GCC unroll 1")
        self.w.open(f"for (int64_t {last.var}k = 0; {last.var}k < {ends}; ++{last.var}k)")
        at = f"{last.var}k"
        self.w.line(f"const int64_t {last.var} = {at} < {found.first} ? {at} : {at} + {found.steps};")
        self._passes_body(self.kernel.passes)
        self.w.close()

    def _tiled_points(self, tiles: Tiling, parallel: bool) -> None:
        """The same by tiles of two axes; what lies across the innermost loop is turned on its way in and out."""
        across, last, group = tiles.across, tiles.last, tiles.group()
        outer = [a for a in self.kernel.axes if a not in (across, last)]
        if parallel:
            self.parallel_for(len(outer) + 2)
        for a in outer:
            self.loop(a)
        for start, size, count in ((group, across.size, ACROSS), (str(tiles.begin(last)), last.size, LENGTH)):
            self.w.open(f"for (int64_t {start} = 0; {start} < {c_index(size)}; {start} += {count})")
        self.w.line(f"const int64_t {group}e = tw_imin({group} + {ACROSS}, {c_index(across.size)});")
        for line in tiles.end(last, c_index(last.size)):
            self.w.line(line)
        for op, buffer, index in tiles.accesses:
            if op == "load" and in_no_cache(self.kernel, buffer, index):
                self.w.line(tiles.ahead(self.names[buffer], index))
        begin = tiles.begin(across)
        self.w.open(f"for (int64_t {begin} = {group}; {begin} < {group}e; {begin} += {WIDTH})")
        for line in tiles.end(across, f"{group}e"):
            self.w.line(line)
        for n, access in enumerate(tiles.accesses):
            self.tiles[access] = f"t{n}[{tiles.place()}]"
            self.w.line(
                f"{MEMORY_TYPES[self.kernel.layouts[access[1]].dtype]} t{n}[{WIDTH * LENGTH}] __attribute__((aligned(64)));"
            )
            if access[0] == "load":
                self.w.line(tiles.turned_in(f"t{n}", self.names[access[1]], access[2]))
        self.loop(tiles.across, *tiles.part(tiles.across))
        stores = [i for p in self.kernel.passes for i in streamed(self.kernel, p, tiles.last)]
        copies = open_copied(self, tiles.last, stores, *tiles.part(tiles.last), LENGTH)
        self._passes_body(self.kernel.passes)
        close_copied(self, stores, copies)
        self.w.close()
        for n, (op, buffer, index) in enumerate(tiles.accesses):
            if op == "store":
                self.w.line(tiles.turned_out(f"t{n}", self.names[buffer], index))
        for _ in range(len(outer) + 3):
            self.w.close()

    def rows(self) -> None:
        """Reduction with the vector loop over the innermost reduced axis."""
        axes = self.kernel.axes
        parallel = self._parallel(False)
        if kept := kept_sums(self.kernel):
            loops = open_row_blocks(self, kept, parallel)
        else:
            loops = self._outer_loops(axes, parallel)
        self._scratch_arrays()
        for p in self.kernel.passes:
            if p.level == "outer":
                self._outer_pass(p)
            elif (shares := shares_of(self, p)) is not None:
                row_in_shares(self, p, shares)
            else:
                self.row_pass(p)
        for _ in range(loops):
            self.w.close()

    def columns(self) -> None:
        """Reduction with the vector loop over blocks of the innermost outer axis."""
        *outer, last = self.kernel.axes
        first, *again = (p for p in self.kernel.passes if p.level == "inner")
        read = list(dict.fromkeys(i.args[:2] for i in first.body.loads() if _walks_columns(i, self.kernel)))
        sizes = [a.size for a in self.kernel.reduction_axes]
        itemsizes = sum(self.kernel.layouts[buffer].dtype.itemsize for buffer, _ in read)
        fits = all(isinstance(s, int) for s in sizes) and constant_product(sizes) * AGAIN * itemsizes <= CACHED
        again = again[:1] if fits else []
        block = AGAIN if again else BLOCK
        effects = {i.op for p in self.kernel.passes if p.level == "inner" for i in p.body.instructions if i.dtype is None}
        if again and effects == {"reduce"} and all(_in_one_piece(index, self.kernel) for _, index in read):
            whole = constant_product([last.size]) if isinstance(last.size, int) else WHOLE + 1
            if whole <= WHOLE and constant_product(sizes) * whole * itemsizes <= CACHED:
                block = whole
        block = min(block, last.size) if isinstance(last.size, int) else block
        parallel = self._parallel(False)
        if parallel:
            self.parallel_for(len(outer) + 1)
        for a in outer:
            self.loop(a)
        self.w.open(f"for (int64_t xb = 0; xb < {c_index(last.size)}; xb += {block})")
        self.w.line(f"int64_t xe = tw_imin(xb + {block}, {c_index(last.size)});")
        self._scratch_arrays(block)
        near = read if block != last.size else []
        for p in self.kernel.passes:
            self._column_pass(p, last, block, near if p in again else [])
        for _ in (*outer, last):
            self.w.close()

    def few_rows(self) -> None:
        """Products that read a large matrix once."""
        found = few_rows(self.kernel)
        assert found is not None
        few_rows_nest(self, found, self._parallel(False), self.vectorises(self.kernel.passes[1:]))

    def _outer_loops(self, axes: Sequence[Axis], parallel: bool) -> int:
        """Opens them, and gives how many: one more where an axis is walked in blocks."""
        blocks = kept_rows(self.kernel) if len(axes) + 1 == len(self.kernel.axes) else None
        if blocks is None:
            if parallel and axes:
                self.parallel_for(_collapsible(axes))
            for a in axes:
                self.loop(a)
            return len(axes)
        position, step = blocks
        axis = axes[position + 1]
        size, begin = constant_product([axis.size]), f"{axis.var}b"
        if parallel:
            enough = constant_product([a.size for a in axes[:position]]) * (size // step) >= CHUNKS
            self.parallel_for(position + (1 if enough else 2))
        for a in axes[:position]:
            self.loop(a)
        self.w.open(f"for (int64_t {begin} = 0; {begin} < {size}; {begin} += {step})")
        self.loop(axes[position])
        self.loop(axis, begin, str(step) if size % step == 0 else f"tw_imin({step}, {size} - {begin})")
        for a in axes[position + 2 :]:
            self.loop(a)
        return len(axes) + 1

    def loop(self, axis: Axis, start: str | None = None, count: str = "") -> None:
        """All of an axis, or `count` steps from a start. Integers wrap around, so only a loop from 0 has a length that g++ knows."""
        if start is None:
            self.w.open(f"for (int64_t {axis.var} = 0; {axis.var} < {c_index(axis.size)}; ++{axis.var})")
            return
        self.w.open(f"for (int64_t {axis.var}k = 0; {axis.var}k < {count}; ++{axis.var}k)")
        self.w.line(f"const int64_t {axis.var} = {start} + {axis.var}k;")

    def parallel_for(self, collapse: int, simd: bool = False) -> None:
        """What hands the loops that follow to the threads."""
        clauses = (f" collapse({collapse})" if collapse > 1 else "") + self.bad_clause()
        if not self.past_caches:
            self.w.line(f"#pragma omp parallel for{' simd' if simd else ''}{clauses}")
            return
        if not self.region:
            self.region = True
            self.w.line("#pragma omp parallel")
            self.w.open()
        self.w.line(f"#pragma omp for{' simd' if simd else ''} nowait{clauses}")

    def bad_clause(self) -> str:
        return " reduction(|:bad)" if self.checks else ""

    def _parallel(self, flat: bool) -> bool:
        """Whether the loop is worth a second thread; unknown sizes count as large."""
        if self.atomic or self.scatters:
            return False
        axes = self.kernel.axes
        if not axes or not flat and len(axes) == 1 and not self.kernel.reduction_axes:
            return False
        return self._is_large()

    def _is_large(self) -> bool:
        points = constant_product([a.size for a in (*self.kernel.axes, *self.kernel.reduction_axes)])
        return points * self.cost() > self.grain

    def cost(self) -> int:
        """Of a point, in operations."""
        count = 0
        for p in self.kernel.passes:
            for i in p.body.instructions:
                count += SCALAR_OPS[i.op].cost if i.op in SCALAR_OPS else int(i.op in ("load", "store"))
        return max(count // 4, 1)

    def vectorises(self, passes: Sequence[Pass]) -> bool:
        """Whether loops over these may be vector loops."""
        if self.atomic or self.scatters:
            return False
        return not any(i.op in ONE_BY_ONE for p in passes for i in p.body.instructions)

    def _scratch_arrays(self, block: int = 1) -> None:
        """block: the points whose values lie side by side."""
        self.block = block
        for s in self.kernel.scratch:
            if not isinstance(s.size, int):
                raise RenderError(f"{self.kernel.name}: scratch of symbolic size {s.size}")
            self.w.line(f"{CPP_TYPES[s.dtype]} {self.scratch[s.name]}[{s.size * block}] __attribute__((aligned(64)));")

    # passes

    def _passes_body(self, passes: Sequence[Pass]) -> None:
        for p in passes:
            self.statements(p.body.instructions, {})

    def _outer_pass(self, p: Pass) -> None:
        self.statements(p.body.instructions, {})

    def row_pass(self, p: Pass) -> None:
        """What a pass does with a row."""
        near = rows_ahead(self.kernel, p)
        p = computed_ahead(self, p)
        reductions = [i for i in p.body.instructions if i.op == "reduce"]
        scans = any(i.op == "scan" for i in p.body.instructions)
        positions = [i for i in reductions if i.args[1] in POSITIONS]
        *outer, last = self.kernel.reduction_axes
        elements = product(a.size for a in (*outer, last))
        sums = all(i.args[1] in ("sum", "dot") for i in reductions)
        fits = in_whole_lanes(p, reductions, elements) and in_lanes((*outer, last), sums)
        whole = fits and not scans and self.vectorises([p])
        names = self._declare(p, reductions, None, whole)
        self._declare_scans(p, None)
        if whole:
            row_in_lanes(self, p, reductions, names, near)
            return
        if in_groups(p) and not (outer or reductions) and self.vectorises([p]):
            scan_in_groups(self, p, last)
            return
        simd = not scans and not positions and self.vectorises([p])
        stores = streamed(self.kernel, p, last) if simd else []
        grouped = simd and not reductions and has_parts(p.body, last)
        if stores or grouped:
            for around in outer:
                self.loop(around)
            if grouped:
                self._in_groups(last, p.body, stores, False, near if stores else [])
            else:
                copies = open_blocks(self, last, stores, False, None, near)
                self.statements(p.body.instructions, {})
                close_blocks(self, stores, copies)
            for _ in outer:
                self.w.close()
            return
        blocks = self.open_blocks(p, self._sums(reductions, names, None), CHAIN * VECTOR if simd else CHAIN)
        accumulators = names | {name: s.name for name, s in blocks.sums.items()}
        for a in blocks.inside[:-1]:
            self.loop(*a)
        if simd:
            self.w.line(SIMD + self.reduction_clauses(reductions, accumulators) + self.bad_clause())
        self.loop(*blocks.inside[-1])
        self.statements(p.body.instructions, accumulators)
        for _ in blocks.inside:
            self.w.close()
        self.close_blocks(blocks)

    def _sums(self, reductions: list[Instruction], names: dict[str, str], width: int | None) -> dict[str, Sum]:
        """Those reductions that lose something at each step."""
        dtypes = {i.args[0]: self.locals[i.args[0]][1] for i in reductions if i.args[1] in ("sum", "dot")}
        return {name: Sum(names[name], CPP_TYPES[d], width) for name, d in dtypes.items() if d.is_floating_point}

    def open_blocks(self, p: Pass, sums: dict[str, Sum], longest: int) -> "Blocks":
        """The loops around blocks of at most `longest` iterations, if there are sums of more."""
        axes = self.kernel.reduction_axes if p.level == "inner" else ()
        found = cut(axes, longest) if sums else None
        if found is None:
            return Blocks(sums, tuple((a,) for a in axes))
        for s in sums.values():
            self.w.line(s.cascade())
        *around, axis = axes[: found.position + 1]
        for a in around:
            self.loop(a)
        begin, size, count = f"{axis.var}b", c_index(axis.size), str(found.step)
        self.w.open(f"for (int64_t {begin} = 0; {begin} < {size}; {begin} += {count})")
        if not isinstance(axis.size, int) or axis.size % found.step:
            count = f"tw_imin({count}, {size} - {begin})"
        for s in sums.values():
            self._declare_variable(s.type, s.block().name, _array(s.width), "{}" if "<" in s.type else "0", s.width)
        inside = ((axis, begin, count), *((a,) for a in axes[found.position + 1 :]))
        return Blocks({name: s.block() for name, s in sums.items()}, inside, found, tuple(sums.values()))

    def close_blocks(self, blocks: "Blocks") -> None:
        """Adds a block's sums to those before, and closes the loops around."""
        if blocks.cut is None:
            return
        for s in blocks.totals:
            self.w.line(s.add())
        for _ in range(blocks.cut.position + 1):
            self.w.close()
        for s in blocks.totals:
            self.w.line(s.total())

    def _declare(self, p: Pass, reductions: list[Instruction], block: int | None, lanes: bool = False) -> dict[str, str]:
        """Variables of the results. lanes: what is needed on the way to a place is elsewhere."""
        names: dict[str, str] = {}
        for i in reductions:
            name, kind, value = i.args[:3]
            dtype = compute_dtype(dtype_of(p, value))
            text = CPP_TYPES[dtype]
            acc = f"a{self.counter}"
            self.counter += 1
            names[name] = acc
            array, start = _array(block), _start(kind, text)
            if kind in POSITIONS:
                if not lanes:
                    self._declare_variable(text, f"{acc}_v", array, start, block)
                self._declare_variable("int64_t", acc, array, "INT64_MAX", block)
                self.locals[name] = (acc, torch.int64)
            else:
                self._declare_variable(text, acc, array, start, block)
                self.locals[name] = (acc, dtype)
        return names

    def _declare_variable(self, kind: str, name: str, array: str, start: str, block: int | None) -> None:
        if block is None:
            self.w.line(f"{kind} {name} = {start};")
        else:
            self.w.line(f"{kind} {name}{array};")
            self.w.line(f"for (int64_t k = 0; k < {block}; ++k) {name}[k] = {start};")

    def _declare_scans(self, p: Pass, block: int | None) -> None:
        for i in p.body.instructions:
            if i.op == "scan":
                text = CPP_TYPES[carried(i)]
                self._declare_variable(text, f"c_{i.args[0]}", _array(block), REDUCTIONS[i.args[1]][0](text), block)

    def reduction_clauses(self, reductions: list[Instruction], accumulators: dict[str, str]) -> str:
        return "".join(f" reduction({OMP_REDUCTION[i.args[1]]}:{accumulators[i.args[0]]})" for i in reductions)

    def _column_pass(self, p: Pass, last: Axis, block: int, near: Sequence[tuple[str, Expr]]) -> None:
        """near: what the next block will read, of which each step brings a row into the second-level cache."""
        reductions = [i for i in p.body.instructions if i.op == "reduce"]
        names = self._declare(p, reductions, block)
        self._declare_scans(p, block)
        defined = [i for i in p.body.instructions if i.op == "define"]
        for i in defined:
            dtype = compute_dtype(dtype_of(p, i.args[1]))
            self.locals[i.args[0]] = (f"d{self.counter}", dtype)
            self.w.line(f"{CPP_TYPES[dtype]} d{self.counter}[{block}] __attribute__((aligned(64)));")
            self.counter += 1
        blocks = self.open_blocks(p, self._sums(reductions, names, block), CHAIN)
        for a in blocks.inside:
            self.loop(*a)
        for buffer, index in near:
            start = c_index(substitute(index, {last.var: symbol("xb", 0, None) + block}))
            self.w.line(f"tw_ahead(&{self.names[buffer]}[{start}], 0, 1, {block});")
        count = str(block) if isinstance(last.size, int) and last.size % block == 0 else "xe - xb"
        stores = streamed(self.kernel, p, last) if self.vectorises([p]) and self.past_caches else []
        copies: list[str] = []
        if stores:
            copies = open_copied(self, last, stores, "xb", count, block)
        else:
            if self.vectorises([p]):
                self.w.line(SIMD + self.bad_clause())
            self.loop(last, "xb", count)
        accumulators = names | {name: s.name for name, s in blocks.sums.items()}
        self.statements(p.body.instructions, accumulators, f"{last.var} - xb")
        close_copied(self, stores, copies)
        for _ in blocks.inside:
            self.w.close()
        self.close_blocks(blocks)

    # statements

    def statements(
        self,
        instructions: Sequence[Instruction],
        accumulators: dict[str, str],
        lane: str | None = None,
        without: frozenset[str] = frozenset(),
        loop: tuple[int, Callable[[], None]] | None = None,
    ) -> None:
        """A body. loop: what begins a loop after so many instructions."""
        base, dtypes = self.new_values(), [i.dtype for i in instructions]
        for n, i in enumerate(instructions):
            if loop is not None and n == loop[0]:
                loop[1]()
            if i.op not in without:
                self.statement(i, f"{base}{n}", dtypes, accumulators, lane)

    def new_values(self) -> str:
        """What the names of a body's values begin with."""
        self.counter += 1
        return f"v{self.counter - 1}_"

    def statement(
        self, i: Instruction, name: str, dtypes: Sequence[Any], accumulators: dict[str, str], lane: str | None = None
    ) -> None:
        """One instruction; `name` is its value's."""
        base, rule = name[: name.index("_") + 1], STATEMENTS.get(i.op)
        text = rule(self, i, base, dtypes, accumulators, lane) if rule else self._scalar(i, base, dtypes)
        if text is not None:
            self.w.line(text if i.dtype is None else f"{CPP_TYPES[i.dtype]} {name} = {text};")

    def _scalar(self, i: Instruction, base: str, dtypes: Sequence[Any]) -> str:
        assert i.dtype is not None
        operand: torch.dtype = dtypes[i.args[0].position] if i.op != "where" else i.dtype
        kind = CPP_TYPES[operand] if i.dtype != torch.bool else CPP_TYPES[torch.bool]
        return CPP_TEXT[i.op](kind, *[f"{base}{a.position}" for a in i.args])


def _array(width: int | None) -> str:
    return "" if width is None else f"[{width}] __attribute__((aligned(64)))"


def _start(kind: str, text: str) -> str:
    return REDUCTIONS[POSITIONS.get(kind, kind)][0](text)


OMP_REDUCTION = {
    "sum": "+", "dot": "+", "prod": "*", "max": "tw_max", "min": "tw_min", "any": "|", "all": "&", "xor_sum": "^",
}  # fmt: skip


def shape(kernel: LoopKernel) -> str:
    """Which nest fits: see the head of this file."""
    if not kernel.reduction_axes:
        return "points"
    if few_rows(kernel) is not None:
        return "few rows"
    if not kernel.axes or kept_sums(kernel):
        return "rows"
    row = _contiguous(kernel, kernel.reduction_axes[-1].var, kernel.axes[-1].var)
    column = _contiguous(kernel, kernel.axes[-1].var, kernel.reduction_axes[-1].var)
    kept = constant_product([s.size for s in kernel.scratch[:1]]) * sum(s.dtype.itemsize for s in kernel.scratch)
    return "columns" if column > row and (not kernel.scratch or kept * AGAIN <= KEPT) else "rows"


def _contiguous(kernel: LoopKernel, var: Any, other: Any) -> int:
    """How many loads and stores of inner passes walk memory element by element along var, and in larger steps along other.

    What does not depend on the other variable is one value, or one vector, for its whole loop: it is cheap in both nests.
    """
    count = 0
    for p in kernel.passes:
        if p.level == "inner":
            for i in p.body.instructions:
                if i.op in ("load", "store") and isinstance(i.args[1], Expr):
                    count += i.args[1].coefficient(var) == 1 and i.args[1].coefficient(other) != 0
    return count


def _walks_columns(i: Instruction, kernel: LoopKernel) -> bool:
    """Whether a load walks a columns' nest in both directions, whose places are known ahead."""
    index, known = i.args[1], {a.var for a in (*kernel.axes, *kernel.reduction_axes)} | {*kernel.sizes, *kernel.numbers}
    if not isinstance(index, Expr) or not index.free_symbols <= known:
        return False
    return index.coefficient(kernel.axes[-1].var) == 1 and any(index.coefficient(a.var) != 0 for a in kernel.reduction_axes)


def _in_one_piece(index: Size, kernel: LoopKernel) -> bool:
    """Whether what a columns' nest reads for a point of its outer axes follows each other in memory."""
    step = kernel.axes[-1].size
    for axis in reversed(kernel.reduction_axes):
        if not isinstance(index, Expr) or not isinstance(step, int) or index.coefficient(axis.var) != step:
            return False
        step = constant_product([step, axis.size]) if isinstance(axis.size, int) else 0
    return True


def _collapsible(axes: Sequence[Axis]) -> int:
    """How many outer loops to hand to the threads together: enough for a few chunks each."""
    count, running = 0, 1
    for a in axes:
        count += 1
        running *= a.size if isinstance(a.size, int) else 64
        if running >= CHUNKS:
            break
    return count


def _scatters(p: Pass) -> bool:
    """Whether a store goes to a computed position."""
    indirect = {i.args[2] for i in p.body.instructions if i.op == "indirect"}
    return any(
        isinstance(i.args[1], Expr) and bool(i.args[1].free_symbols & indirect) for i in p.body.instructions if i.op == "store"
    )


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Loops over reduction axes: the sums to which a body adds, the loops still to be opened as arguments of `loop`, and where
    the nest is cut and what blocks are added up to, if it is."""

    sums: Mapping[str, Sum]
    inside: tuple[tuple[Any, ...], ...]
    cut: Cut | None = None
    totals: tuple[Sum, ...] = ()


SHAPES = {
    "points": CppKernel.points,
    "rows": CppKernel.rows,
    "columns": CppKernel.columns,
    "few rows": CppKernel.few_rows,
}

__all__ = ["CppKernel", "product", "shape"]
