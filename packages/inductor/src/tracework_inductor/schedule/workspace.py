"""Where the intermediate values of a CPU graph lie in the one workspace that each call takes (tracework_runtime.workspace).

A buffer is placed there if its size is known and its memory never leaves the graph: neither as an output nor inside of a result of a
library call that may give its argument's memory.
"""

from collections.abc import Sequence

from .graph import alias_root, output_buffers
from .plan import ExternKernel, Kernel, MemoryStep, Program, Workspace

ALIGNMENT = 64
LEAST = 1 << 20
"""Bytes; with fewer, the C library keeps the memory by itself."""
NEW_RESULTS = (
    "torch.ops.aten.",
    "torch.mm",
    "torch.bmm",
    "torch.addmm",
    "torch.baddbmm",
    "prims.",
    "restride",
    "packed_convolution(",
    "(lambda ",
)
"""How calls begin whose results have memory of their own: ATen's schemas say so (views are copied, see lowering/fallback.py)."""


def placeable(program: Program, name: str) -> bool:
    """Whether a buffer could be placed, as far as its layout says."""
    layout = program.buffers[name].layout
    return layout.device.type == "cpu" and all(isinstance(s, int) for s in (*layout.sizes, *layout.strides))


def has_workspace(program: Program) -> bool:
    """Graphs with other devices keep to torch's allocators."""
    return all(b.layout.device.type == "cpu" for b in program.buffers.values())


def place(program: Program, kernels: Sequence[Kernel], steps: Sequence[MemoryStep]) -> Workspace:
    """Offsets of the buffers that live only within a call."""
    storages = _Storages(program, kernels, steps)
    occupied: list[tuple[int, int, int]] = []  # (start, end, last use), in order of starts
    offsets: dict[str, int] = {}
    size = 0
    for first, members in storages.in_order():
        wanted = storages.bytes(members)
        occupied = [o for o in occupied if o[2] >= first]
        start = _gap(occupied, wanted)
        occupied.append((start, start + wanted, storages.last_use(members)))
        occupied.sort()
        offsets.update(dict.fromkeys(members, start))
        size = max(size, start + wanted)
    return Workspace(size, offsets) if size >= LEAST and offsets else Workspace()


def _gap(occupied: Sequence[tuple[int, int, int]], wanted: int) -> int:
    """The lowest address with so much room."""
    start = 0
    for begin, end, _ in occupied:
        if begin - start >= wanted:
            return start
        start = max(start, end)
    return start


class _Storages:
    """Pieces of memory: the buffers that take it one after the other, in place."""

    def __init__(self, program: Program, kernels: Sequence[Kernel], steps: Sequence[MemoryStep]) -> None:
        self._program = program
        self._last: dict[str, int] = {}
        for n, kernel in enumerate(kernels):
            for name in (*kernel.reads, *kernel.writes):
                self._last[alias_root(program.buffers, name)] = n
        self._members: dict[str, list[str]] = {}
        self._born: dict[str, int] = {}
        root: dict[str, str] = {}
        for n, (kernel, step) in enumerate(zip(kernels, steps, strict=True)):
            for name in step.allocate if _allocates(kernel) else ():
                root[name], self._members[name], self._born[name] = name, [name], n
            for new, old in step.reuse:
                if old in root:
                    root[new] = root[old]
                    self._members[root[old]].append(new)
        self._escaping = _escaping(program, kernels)

    def in_order(self) -> list[tuple[int, list[str]]]:
        """(first use, buffers) of each piece that can be placed."""
        found = []
        for name, members in self._members.items():
            if not self._escaping & set(members) and all(placeable(self._program, m) for m in members):
                found.append((self._born[name], members))
        return found

    def last_use(self, members: Sequence[str]) -> int:
        """The number of the last kernel that touches the piece."""
        return max(self._last[m] for m in members)

    def bytes(self, members: Sequence[str]) -> int:
        """Size, as a multiple of ALIGNMENT."""
        layouts = [self._program.buffers[m].layout for m in members]
        found = max(int(layout.elements()) * layout.dtype.itemsize for layout in layouts)
        return max(-(-found // ALIGNMENT), 1) * ALIGNMENT


def _allocates(kernel: Kernel) -> bool:
    """Whether the host program, not the library, makes the memory of what is written."""
    return not isinstance(kernel, ExternKernel) or kernel.node.out_form is not None or kernel.node.target == "empty"


def _escaping(program: Program, kernels: Sequence[Kernel]) -> set[str]:
    found = {alias_root(program.buffers, b) for b in output_buffers(program)}
    for kernel in kernels:
        if isinstance(kernel, ExternKernel) and kernel.node.out_form is None and not kernel.node.target.startswith(NEW_RESULTS):
            found |= {alias_root(program.buffers, b) for b in kernel.reads}
    return found
