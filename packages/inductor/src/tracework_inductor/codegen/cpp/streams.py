"""Results that no cache holds go to memory past the caches.

A plain store of an element first reads its line: a result that is written once takes the time of two. Whole lines that are written past the
caches are not read. g++ writes none of its vector loops so: a block of elements is computed into a small array, which stays in the first
cache, and copied from there. A result that is also read here has its lines in the caches already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir.body import Axis, Instruction, LoopBody
from ...ir.index import Expr, Size, constant_product, substitute, symbol
from ...schedule.plan import LoopKernel, Pass
from ..printer import c_index
from .parts import open_groups_of
from .text_rules import MEMORY_TYPES, SIMD

if TYPE_CHECKING:
    from .kernel import CppKernel

LEAST_BYTES = 1 << 25
"""Of a result: more than a core's part of any last cache."""
BLOCK = 128
"""Elements that are computed ahead of a copy: while it waits for the memory, the next ones are."""
UNALIGNED = 512
"""Where a block does not begin where a line does: at its ends are lines that other stores write a part of."""
LINE = 64
LONGEST_AHEAD = 1 << 17
"""Bytes of a row that are brought near ahead: with what is kept of this row they lie in the second-level cache."""
LONGEST_ROW = 1 << 14
"""Bytes of rows that loops over parts of them make together."""
LONGEST_ASKED = 4096
"""Bytes of a row that are asked for at once; the processor finds out what comes behind."""
SHORTEST = 64
"""Elements of a row that are worth one."""

NextRow = tuple[str, Size]
"""A buffer, and where an element of a row to come lies, by the variable of the innermost axis."""


def streamed(kernel: LoopKernel, p: Pass, axis: Axis) -> list[Instruction]:
    """The stores of a pass that go past the caches; its innermost loop runs over `axis`."""
    size = axis.size
    if not isinstance(size, int) or size < SHORTEST or any(i.op in ("reduce", "scan") for i in p.body.instructions):
        return []
    return [i for i in p.body.stores() if _in_order(i, kernel, axis) and in_no_cache(kernel, *i.args[:2])]


def _in_order(i: Instruction, kernel: LoopKernel, axis: Axis) -> bool:
    buffer, index = i.args[:2]
    bound = {a.var for a in (*kernel.axes, *kernel.reduction_axes)} | {*kernel.sizes, *kernel.numbers}
    return (
        i.args[3] == "set"
        and buffer not in kernel.reads
        and isinstance(index, Expr)
        and index.free_symbols <= bound
        and index.coefficient(axis.var) == 1
    )


def in_no_cache(kernel: LoopKernel, buffer: str, index: Size) -> bool:
    """Whether more of a buffer is accessed than caches hold."""
    sizes = [a.size for a in (*kernel.axes, *kernel.reduction_axes) if isinstance(index, Expr) and a.var in index.free_symbols]
    known = all(isinstance(s, int) for s in sizes)
    return known and constant_product(sizes) * kernel.layouts[buffer].dtype.itemsize >= LEAST_BYTES


def part_of(kernel: LoopKernel, p: Pass, body: LoopBody, axis: Axis, steps: int) -> list[Instruction]:
    """The stores of a segment's body that go past the caches, where those of the pass do: it writes a part of what that does."""
    if steps < SHORTEST or not streamed(kernel, p, axis):
        return []
    return [i for i in body.stores() if _in_order(i, kernel, axis)]


def streaming(kernel: LoopKernel, axis: Axis) -> bool:
    """Whether any pass has such stores in loops over this axis."""
    return any(streamed(kernel, p, axis) for p in kernel.passes)


def rows_ahead(kernel: LoopKernel, p: Pass) -> list[NextRow]:
    """What the last pass over a row that no cache holds brings near of the next one: what the first pass will read. The processor looks no
    further ahead than a page, and the next row is in another."""
    first, *others = (q for q in kernel.passes if q.level == "inner")
    if not others or p is not others[-1] or not kernel.axes:
        return []
    (*_, axis), (*_, last) = kernel.axes, kernel.reduction_axes
    bound = {a.var for a in (*kernel.axes, *kernel.reduction_axes)} | {*kernel.sizes, *kernel.numbers}
    found = {
        i.args[:2]: kernel.layouts[i.args[0]].dtype.itemsize
        for i in first.body.loads()
        if isinstance(i.args[1], Expr)
        and i.args[1].free_symbols <= bound
        and i.args[1].coefficient(last.var) == 1
        and i.args[1].coefficient(axis.var) != 0
        and in_no_cache(kernel, *i.args[:2])
    }
    if constant_product([a.size for a in kernel.reduction_axes]) * sum(found.values()) > LONGEST_AHEAD:
        return []
    return [(buffer, substitute(index, {axis.var: axis.var + 1})) for buffer, index in found]


def _block(k: CppKernel, axis: Axis, stores: Sequence[Instruction], first: int) -> int:
    """How many elements a block has."""
    for i in stores:
        others = [a.var for a in (*k.kernel.axes, *k.kernel.reduction_axes) if a is not axis]
        start = substitute(i.args[1], {axis.var: first})
        steps = [start.coefficient(var) for var in others] if isinstance(start, Expr) else []
        rest = substitute(start, dict.fromkeys(others, 0)) if isinstance(start, Expr) else start
        itemsize = k.kernel.layouts[i.args[0]].dtype.itemsize
        if not all(isinstance(n, int) and n * itemsize % LINE == 0 for n in (*steps, rest)):
            return UNALIGNED
    return BLOCK


def ask_for_row(k: CppKernel, rows: Sequence[NextRow], last: Axis, begin: Size = 0, count: str = "") -> None:
    """Asks for so many elements from a first one on; count: all, if it is empty."""
    for buffer, index in rows:
        backwards = isinstance(index, Expr) and index.coefficient(last.var) == -1
        size = count or str(min(int(str(last.size)), LONGEST_ASKED // k.kernel.layouts[buffer].dtype.itemsize))
        first = begin + symbol(f"({size} - 1)", 0, None) if backwards else begin
        k.w.line(f"tw_ahead(&{k.names[buffer]}[{c_index(substitute(index, {last.var: first}))}], 0, 1, {size});")


def open_blocks(
    k: CppKernel,
    axis: Axis,
    stores: Sequence[Instruction],
    parallel: bool,
    part: tuple[int, int] | None = None,
    ahead: Sequence[NextRow] = (),
    grouped: bool = False,
) -> list[str]:
    """Opens the loops over an axis, or a first step and so many, block by block, for `close_blocks`; `parallel` if the blocks are shared out
    to the threads. ahead: what is brought near of a row to come meanwhile. grouped: whether the inner loop is that over groups (see
    parts.py)."""
    assert isinstance(axis.size, int)
    first, steps = part or (0, axis.size)
    begin, end, block = f"{axis.var}b", first + steps, min(_block(k, axis, stores, first), steps)
    if parallel:
        k.parallel_for(1)
    k.w.open(f"for (int64_t {begin} = {first}; {begin} < {end}; {begin} += {block})")
    count = str(block) if steps % block == 0 else f"tw_imin({block}, {end} - {begin})"
    ask_for_row(k, ahead, axis, symbol(begin, 0, None), count)
    return open_copied(k, axis, stores, begin, count, block, grouped)


def close_blocks(k: CppKernel, stores: Sequence[Instruction], copies: list[str]) -> None:
    """Closes them."""
    close_copied(k, stores, copies)
    k.w.close()


def open_row(k: CppKernel, axis: Axis) -> list[str]:
    """For rows that several loops over parts of an axis make together: from here to `close_row` their results are a whole row's, of which the
    copies are given; none where a row is too long for the first-level cache, or goes to the caches."""
    stores = [i for p in k.kernel.passes for i in streamed(k.kernel, p, axis)]
    buffers, size = {i.args[0] for i in stores}, axis.size
    nbytes = constant_product([size]) * sum(k.kernel.layouts[b].dtype.itemsize for b in buffers)
    if len(buffers) < len(stores) or nbytes > LONGEST_ROW:
        return []
    copies: list[str] = []
    for n, i in enumerate(stores):
        buffer, index = i.args[:2]
        start = substitute(index, {axis.var: 0})
        k.rows_of[buffer] = f"row{n}s", start
        k.w.line(f"{MEMORY_TYPES[k.kernel.layouts[buffer].dtype]} row{n}s[{size}] __attribute__((aligned(64)));")
        copies.append(f"tw_stream(&{k.names[buffer]}[{c_index(start)}], row{n}s, {size});")
    return copies


def close_row(k: CppKernel, copies: list[str]) -> None:
    """Copies a row."""
    for text in copies:
        k.w.line(text)
    k.rows_of.clear()


def open_copied(
    k: CppKernel, axis: Axis, stores: Sequence[Instruction], begin: str, count: str, most: int, grouped: bool = False
) -> list[str]:
    """Opens the loop over at most `most` steps of an axis whose results are copied to their places at its end; gives the copies."""
    for n, i in enumerate(stores):
        k.w.line(f"{MEMORY_TYPES[k.kernel.layouts[i.args[0]].dtype]} s{n}[{most}] __attribute__((aligned(64)));")
    if grouped:
        place = open_groups_of(k, axis, begin, count)
    else:
        place = f"{axis.var}k"
        k.w.line(SIMD + k.bad_clause())
        k.loop(axis, begin, count)
    copies: list[str] = []
    for n, i in enumerate(stores):
        buffer, index = i.args[:2]
        k.tiles["store", buffer, index] = f"s{n}[{place}]"
        first = c_index(substitute(index, {axis.var: symbol(begin, 0, None)}))
        copies.append(f"tw_stream(&{k.names[buffer]}[{first}], s{n}, {count});")
    return copies


def close_copied(k: CppKernel, stores: Sequence[Instruction], copies: list[str]) -> None:
    """Closes it, and copies."""
    k.w.close()
    for i in stores:
        del k.tiles["store", i.args[0], i.args[1]]
    for text in copies:
        k.w.line(text)
