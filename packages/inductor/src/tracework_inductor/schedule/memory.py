"""Lifetimes, reuse and in-place writes: one MemoryStep per kernel."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.index import Size, constant_product, same, same_all
from ..ir.scalar_ops import COLUMNS
from .graph import alias_root, output_buffers, read_buffers
from .plan import ExternKernel, Kernel, KernelBatch, LoopKernel, MemoryPlan, MemoryStep, Program, Workspace
from .workspace import ROOM, ROUNDING, peaks, place, placeable, workspace_device

SMALLEST_LIMIT = {"cpu": 1 << 21, "cuda": 1 << 12}
"""Bytes of the largest buffer that is placed. On the CPU so small ones are placed whatever it takes: small networks spend a sixth of a step on
mapping their pages."""
HELD_FOR_LATER = {"cpu": 1 << 16, "cuda": 1 << 20}
"""Bytes up to which memory waits for any later buffer of its size."""
SMALLER = {"cpu": 2, "cuda": 8}
"""The next limit after one with which there would be too much."""


def plan_memory(program: Program, kernels: Sequence[Kernel], reuse: bool) -> MemoryPlan:
    """In a workspace where there is enough to place; else memory is handed from buffer to buffer."""
    device = workspace_device(program) if reuse else None
    if device == "cpu" and program.role == "inference":
        plan = MemoryPlanner(program, kernels, reuse, ROOM[device]).run()
        if plan.workspace.size:
            return plan
    plain = MemoryPlanner(program, kernels, reuse).run()
    return plain if device is None else _placed_in_no_more(program, kernels, plain, device)


def _placed_in_no_more(program: Program, kernels: Sequence[Kernel], plain: MemoryPlan, device: str) -> MemoryPlan:
    """With a workspace of as large buffers as take no more than the allocator's memory; else as it is, on the CPU with small ones.

    While a network is trained it has most memory where the backward begins: all is there that the forward has kept, and what large buffers
    of a later time would take of the workspace is more.
    """
    most = peaks(program, kernels, plain.steps, plain.workspace)
    largest = min(ROOM[device], most[1])
    while largest >= SMALLEST_LIMIT[device]:
        plan = MemoryPlanner(program, kernels, True, largest).run()
        if not plan.workspace.size:
            break
        found = peaks(program, kernels, plan.steps, plan.workspace)
        if all(mine <= wanted + ROUNDING[device] for mine, wanted in zip(found, most, strict=True)):
            return plan
        largest //= SMALLER[device]
    if device == "cpu":
        small = MemoryPlanner(program, kernels, True, SMALLEST_LIMIT[device]).run()
        return small if small.workspace.size else plain
    return plain


class MemoryPlanner:
    """Walks the kernels in launch order."""

    def __init__(self, program: Program, kernels: Sequence[Kernel], reuse: bool, placed: int = 0) -> None:
        """placed: bytes up to which a buffer goes to the workspace."""
        self.program = program
        self.kernels = kernels
        self.reuse = reuse
        self.buffers: Mapping[str, Any] = program.buffers
        self.kept = {alias_root(self.buffers, b) for b in output_buffers(program)}
        self.read = read_buffers(program, kernels)
        self.last_use = self._last_uses()
        self.placed = placed
        self.free_list: list[str] = []
        self.made: set[str] = set()
        self.live_bytes = 0
        self.peak = 0

    def _last_uses(self) -> dict[str, int]:
        last: dict[str, int] = {}
        for n, kernel in enumerate(self.kernels):
            for name in (*kernel.reads, *kernel.writes):
                last[alias_root(self.buffers, name)] = n
        return last

    def run(self) -> MemoryPlan:
        """The plan."""
        steps = tuple(self._step(n, k) for n, k in enumerate(self.kernels))
        workspace = place(self.program, self.kernels, steps, self.placed) if self.placed else Workspace()
        return MemoryPlan(steps, self.peak, workspace)

    def _owned(self, name: str) -> bool:
        return name in self.buffers and self.buffers[name].kind in ("computed", "extern")

    def _step(self, n: int, kernel: Kernel) -> MemoryStep:
        allocate: list[str] = []
        reuse: list[tuple[str, str]] = []
        reads, writes = kernel.reads, kernel.writes
        dying = [b for b in sorted(reads) if self._dies(b, n)]
        for name in sorted(writes, key=lambda b: (b not in reads, b)):  # what may be taken is made first
            if not self._owned(name) or name in self.made:
                continue
            self.made.add(name)
            old = self._take(name, kernel, dying) if _may_reuse(kernel) else None
            if old is None:
                allocate.append(name)
                self.live_bytes += self._bytes(name)
                self._give_back(name)
            else:
                reuse.append((name, old))
        self.peak = max(self.peak, self.live_bytes)
        taken = {old for _, old in reuse}
        # A library call's result is torch's own tensor; those we allocated and those it made can both be used again.
        ended = [b for b in sorted({*dying, *[w for w in writes if self._dies(w, n)]}) if b not in taken]
        self.free_list += [
            b for b in ended if b in self.read or self.buffers[b].kind != "extern"
        ]  # nobody looks at what others are
        return MemoryStep(tuple(allocate), tuple(reuse), tuple(ended))

    def _dies(self, name: str, n: int) -> bool:
        root = alias_root(self.buffers, name)
        return root == name and self._owned(name) and self.last_use[name] == n and name not in self.kept

    def _take(self, name: str, kernel: Kernel, dying: list[str]) -> str | None:
        """Memory of the same size: of an operand that dies here (in place), or of something freed before."""
        if not self.reuse:
            return None
        freed = [] if self.placed and placeable(self.program, name, self.placed) else self.free_list
        for pool in (dying if not isinstance(kernel, ExternKernel) else [], freed):
            for old in pool:
                if self._fits(name, old) and (pool is freed or old in self.made and self._in_place(kernel, name, old)):
                    pool.remove(old)
                    return old
        return None

    def _in_place(self, kernel: Kernel, new: str, old: str) -> bool:
        if not isinstance(kernel, KernelBatch):
            return in_place(kernel, new, old)
        users = [p for p in kernel.parts if any(alias_root(self.buffers, b) == old for b in p.buffers)]
        return len(users) == 1 and in_place(users[0], new, old)

    def _give_back(self, made: str) -> None:
        """Large free memory is not held over an allocation, which the allocator can serve from it; on the CPU, while a network is trained."""
        device = self.buffers[made].layout.device.type
        if device == "cpu" and self.program.role == "inference":
            return
        if self._bytes(made) > HELD_FOR_LATER[device]:
            self.free_list = [b for b in self.free_list if self._bytes(b) <= HELD_FOR_LATER[device]]

    def _fits(self, new: str, old: str) -> bool:
        a, b = self.buffers[new].layout, self.buffers[old].layout
        return a.device == b.device and a.dtype == b.dtype and same(a.elements(), b.elements())

    def _bytes(self, name: str) -> int:
        layout = self.buffers[name].layout
        return constant_product([layout.elements()]) * layout.dtype.itemsize


def _may_reuse(kernel: Kernel) -> bool:
    return not isinstance(kernel, ExternKernel) or kernel.node.out_form is not None


def in_place(kernel: Kernel, new: str, old: str) -> bool:
    """Whether each element of `new` is written only after the last read of the element of `old` in its place."""
    if not isinstance(kernel, LoopKernel):
        return False
    written: set[Size] = set()
    last_read = first_write = None
    levels: set[str] = set()
    steps = [((n, k), p.level, i) for n, p in enumerate(kernel.passes) for k, i in enumerate(p.body.instructions)]
    for when, level, i in steps:
        if i.op == "store" and i.args[0] == new:
            if i.args[3] == COLUMNS:  # of all rows
                return False
            written.add(i.args[1])
            levels.add(level)
            first_write = when if first_write is None else first_write
    for when, level, i in steps:
        if i.op == "load" and i.args[0] == old:
            if i.args[1] not in written or level not in levels:
                return False
            last_read = when
    return len(written) == 1 and last_read is not None and first_write is not None and last_read < first_write


__all__ = ["ExternKernel", "MemoryPlanner", "in_place", "plan_memory", "same_all"]
