"""Sums of columns that a kernel keeps beside what it does with rows, see schedule/mixed_orders.py.

A block is as many rows as one accumulator takes part in additions. Its sums lie where they are kept, in the first cache while the block runs.
Which rows are of a block does not depend on the threads, so that no sum does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.index import Size, constant_product
from ...ir.scalar_ops import COLUMNS
from ...schedule.plan import LoopKernel
from ..printer import c_index

if TYPE_CHECKING:
    from .kernel import CppKernel

__all__ = ["kept_sums", "open_row_blocks", "place_in_block"]

NUMBER = "kb"
"""The variable that counts blocks."""


def kept_sums(kernel: LoopKernel) -> list[str]:
    """The buffers that keep them."""
    stores = (i for p in kernel.passes for i in p.body.stores())
    return list(dict.fromkeys(i.args[0] for i in stores if i.args[3] == COLUMNS))


def open_row_blocks(k: CppKernel, kept: list[str], parallel: bool) -> int:
    """Opens the loops over the blocks and their rows, which begin with sums of 0; gives the number of loops."""
    axes, layouts = k.kernel.axes, k.kernel.layouts
    points = constant_product([a.size for a in axes])
    blocks = constant_product(layouts[kept[0]].sizes[:1])
    rows = -(-points // blocks)
    if parallel:
        k.parallel_for(1)
    k.w.open(f"for (int64_t {NUMBER} = 0; {NUMBER} < {blocks}; ++{NUMBER})")
    for buffer in kept:
        length = c_index(layouts[buffer].sizes[1])
        k.w.line(f"for (int64_t k = 0; k < {length}; ++k) {k.names[buffer]}[{NUMBER} * {length} + k] = 0;")
    k.w.open(f"for (int64_t row = {NUMBER} * {rows}; row < tw_imin({NUMBER} * {rows} + {rows}, {points}); ++row)")
    inside = points
    for axis in axes:
        outer, inside = inside, inside // constant_product([axis.size])
        at = "row" if outer == points else f"row % {outer}"
        k.w.line(f"const int64_t {axis.var} = {at if inside == 1 else f'{at} / {inside}'};")
    return 2


def place_in_block(k: CppKernel, buffer: str, index: Size) -> str:
    """The sum of a column that a block keeps."""
    return f"{k.names[buffer]}[{NUMBER} * {c_index(k.kernel.layouts[buffer].sizes[1])} + {c_index(index)}]"
