"""What of a row is computed again where it is read, instead of being kept."""

from __future__ import annotations

from ...ir.body import Instruction, LoopBody, Ref, axes_behind
from ...schedule.plan import LoopKernel, Pass

__all__ = ["may_compute_again"]

_LOADS_TO_COMPUTE_AGAIN = 2


def _scratch_stores(kernel: LoopKernel) -> list[tuple[Pass, Instruction]]:
    return [(p, i) for p in kernel.passes for i in p.body.instructions if i.op == "scratch_store"]


def _loads_behind(body: LoopBody, position: int) -> int:
    """How many loads an element of a row takes, besides those that are made once for all of the row."""
    rows = set(body.reduction_axes)
    loads = ((n, body.instructions[n].op) for n in body.behind(position))
    return sum(op == "scratch_load" or (op == "load" and bool(rows & axes_behind(body, Ref(n)))) for n, op in loads)


def may_compute_again(kernel: LoopKernel) -> bool:
    """Whether what scratch holds is better computed again where it is read than kept in memory: it takes few loads,
    and nothing is stored before, which could be the same memory."""
    loads = max((_loads_behind(p.body, i.args[2].position) for p, i in _scratch_stores(kernel)), default=0)
    if loads > _LOADS_TO_COMPUTE_AGAIN:
        return False
    reads = [n for n, p in enumerate(kernel.passes) if any(i.op == "scratch_load" for i in p.body.instructions)]
    stores = [n for n, p in enumerate(kernel.passes) if any(True for _ in p.body.stores())]
    return not reads or not stores or min(stores) >= max(reads)
