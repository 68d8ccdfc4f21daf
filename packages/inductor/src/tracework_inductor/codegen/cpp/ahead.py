"""Rows of large tensors that do not follow each other in memory: those that come next are asked for.

The processor finds out by itself what is read in order, within a page. Rows that are looked up, taken from every so many, or from the last one
to the first, are each waited for without this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.body import Axis, Instruction, LoopBody
from ...ir.index import Expr, constant_product, substitute, symbol
from ...schedule.plan import LoopKernel
from ..printer import c_index
from .streams import LEAST_BYTES, NextRow, in_no_cache

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["next_rows", "rows_looked_up_next", "rows_under_way"]

DISTANCE = 8192
"""Bytes of rows that are under way."""
MOST_ROWS = 8
SHORTEST = 128
"""Bytes of a row that are worth it: two lines."""


def next_rows(kernel: LoopKernel, body: LoopBody, later: Expr | None = None) -> list[NextRow]:
    """Of what is read at places that are known, in rows along the innermost axis. later: the row to come where rows are left out, of which the
    processor does not find out."""
    if len(kernel.axes) < 2:
        return []
    *_, axis, last = kernel.axes
    known = {a.var for a in kernel.axes} | {*kernel.sizes, *kernel.numbers}
    found: dict[NextRow, None] = {}
    for i in body.loads():
        buffer, index, mask = i.args
        if mask is not None or not isinstance(index, Expr) or not index.free_symbols <= known:
            continue
        far = _is_far(index, axis, last, later is not None)
        if far and in_no_cache(kernel, buffer, index) and (rows := _distance(kernel, buffer, last)):
            found[buffer, substitute(index, {axis.var: axis.var + rows if later is None else later})] = None
    return list(found)


def rows_under_way(kernel: LoopKernel) -> int:
    """How many rows ahead is enough for all that a kernel touches."""
    return max(_distance(kernel, buffer, kernel.axes[-1]) for buffer in kernel.buffers) or MOST_ROWS


def _is_far(index: Expr, axis: Axis, last: Axis, left_out: bool) -> bool:
    along, across = index.coefficient(last.var), index.coefficient(axis.var)
    if along not in (1, -1) or not isinstance(across, int) or not isinstance(last.size, int):
        return False
    return abs(across) >= last.size and (left_out or (along, across) != (1, last.size))


def _distance(kernel: LoopKernel, buffer: str, last: Axis) -> int:
    """How many rows ahead; 0 where rows are too short."""
    assert isinstance(last.size, int)
    nbytes = last.size * kernel.layouts[buffer].dtype.itemsize
    return max(1, min(MOST_ROWS, DISTANCE // nbytes)) if nbytes >= SHORTEST else 0


def rows_looked_up_next(k: CppKernel, body: LoopBody, ahead: int, own: Expr | None = None) -> list[NextRow]:
    """Of what is looked up at places that a row's first instructions, `ahead` of them, give; writes these for the row to come. own: which row
    that is, where it is not that of some steps later."""
    kernel = k.kernel
    if len(kernel.axes) < 2:
        return []
    *_, axis, last = kernel.axes
    looked_up = {i.args[2]: symbol(f"{i.args[2]}n", 0, None) for i in body.instructions[:ahead] if i.op == "indirect"}
    later = symbol(f"{axis.var}n", 0, None) if own is None else own
    found: dict[NextRow, None] = {}
    rows = 0
    for i in body.instructions[ahead:]:
        if i.op not in ("load", "store") or not isinstance(i.args[1], Expr):
            continue
        buffer, index = i.args[:2]
        mask = i.args[2] if i.op == "load" else None
        if mask is not None or index.coefficient(last.var) != 1 or not index.free_symbols & looked_up.keys():
            continue
        nbytes = constant_product([kernel.layouts[buffer].elements()]) * kernel.layouts[buffer].dtype.itemsize
        distance = _distance(kernel, buffer, last) if nbytes >= LEAST_BYTES else 0
        if distance:
            rows = max(rows, distance)
            found[buffer, substitute(index, {axis.var: later, **looked_up})] = None
    if not found:
        return []
    if own is None:
        k.w.line(f"const int64_t {later} = tw_imin({axis.var} + {rows}, {c_index(axis.size - 1)});")
    k.statements([_moved(i, {axis.var: later, **looked_up}) for i in body.instructions[:ahead]], {})
    return list(found)


def _moved(i: Instruction, places: dict[Expr, Expr]) -> Instruction:
    return i._replace(args=tuple(substitute(a, places) if isinstance(a, Expr) else a for a in i.args))
