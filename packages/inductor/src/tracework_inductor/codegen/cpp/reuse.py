"""Rows that an outer axis reads again, as rotations by angles do that all heads share: they are read while they lie in the second-level cache.

With the outer axis around, each of its steps would read all of them from memory. The axis of the rows is walked in blocks, and the outer one
inside of these.
"""

from ...ir.index import Expr, constant_product
from ...schedule.plan import LoopKernel

__all__ = ["kept_rows"]

LEAST = 1 << 22
"""Bytes that caches do not keep beside what else goes through them."""
BLOCK = 1 << 18
"""Bytes of a block of rows."""
FEWEST = 8
"""Rows of a block."""


def kept_rows(kernel: LoopKernel) -> tuple[int, int] | None:
    """The position of an axis whose steps all read the same along the next one, and how many steps of that make a block."""
    *outer, _ = axes = kernel.axes
    if not all(isinstance(a.size, int) for a in axes):
        return None
    known = {a.var for a in axes} | {*kernel.sizes, *kernel.numbers}
    loads = {i.args[:2]: i for p in kernel.passes for i in p.body.loads()}
    plain = [i for i in loads.values() if isinstance(i.args[1], Expr) and i.args[1].free_symbols <= known]
    for position, (around, axis) in enumerate(zip(outer, outer[1:], strict=False)):
        shared = [i for i in plain if axis.var in i.args[1].free_symbols and around.var not in i.args[1].free_symbols]
        row = sum(
            kernel.layouts[i.args[0]].dtype.itemsize
            * constant_product([a.size for a in axes[position + 2 :] if a.var in i.args[1].free_symbols])
            for i in shared
        )
        steps, size = BLOCK // max(row, 1), constant_product([axis.size])
        if row * size >= LEAST and FEWEST <= steps < size and constant_product([around.size]) > 1:
            return position, steps
    return None
