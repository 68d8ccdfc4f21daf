"""Where the intermediate values of a graph on one device lie in the one workspace that each call takes (tracework_runtime.workspace).

A buffer is placed there if its size is known and its memory never leaves the graph: neither as an output nor inside of a result of a
library call that may give its argument's memory. A GPU's workspace is kept from call to call beside what torch's allocator has, so it is
small, and a graph may not need more memory for it than by the allocator alone.
"""

from collections.abc import Sequence

from ..ir.cores import PACKED_CALLS
from ..ir.index import constant_product, constant_size
from .graph import alias_root, ended_inputs, output_buffers
from .operators import recorded_in_parts
from .plan import ExternKernel, Kernel, MemoryStep, Program, Workspace

ALIGNMENT = {"cpu": 64, "cuda": 256}
LEAST = 1 << 20
"""Bytes on the CPU; with fewer, the C library keeps the memory by itself."""
LEAST_BUFFERS = {"cpu": 16, "cuda": 3}
"""From so many on a workspace costs less than allocating each: on a GPU as much as two allocations, on the CPU as some."""
ROOM = {"cpu": 1 << 62, "cuda": 32 << 20}
"""Bytes of a workspace: on a GPU, about what torch itself keeps for the matrix library of each stream."""
ROUNDING = {"cpu": 0, "cuda": 2 << 20}
"""The allocator of a GPU rounds small requests together to so many bytes."""
NEW_RESULTS = (
    "torch.ops.aten.",
    "torch.mm",
    "torch.bmm",
    "torch.addmm",
    "torch.baddbmm",
    "prims.",
    "restride",
    *PACKED_CALLS,
    "(lambda ",
)
"""How calls begin whose results have memory of their own: ATen's schemas say so (views are copied, see lowering/fallback.py)."""


def placeable(program: Program, name: str, largest: int) -> bool:
    """Whether a buffer of at most `largest` bytes could be placed, as far as its layout says."""
    layout = program.buffers[name].layout
    static = all(isinstance(s, int) for s in (*layout.sizes, *layout.strides))
    return static and layout.dtype.itemsize * constant_size(layout.elements()) <= largest


def workspace_device(program: Program) -> str | None:
    """The kind of the one device of a graph; graphs with several, or of which CUDA graphs record parts, keep to torch's allocators."""
    devices = {b.layout.device for b in program.buffers.values()}
    kind = next(iter(devices)).type if len(devices) == 1 else None
    if kind == "cuda" and recorded_in_parts(program):
        return None
    return kind if kind in ROOM else None


def place(program: Program, kernels: Sequence[Kernel], steps: Sequence[MemoryStep], largest: int) -> Workspace:
    """Offsets of the buffers of at most `largest` bytes that live only within a call."""
    device = workspace_device(program)
    if device is None:
        return Workspace()
    storages = _Storages(program, kernels, steps, ALIGNMENT[device], largest)
    occupied: list[tuple[int, int, int]] = []  # (start, end, last use), in order of starts
    offsets: dict[str, int] = {}
    size = 0
    for first, members in storages.in_order():
        wanted = storages.bytes(members)
        occupied = [o for o in occupied if o[2] >= first]
        start = _gap(occupied, wanted)
        if start + wanted > ROOM[device]:
            continue
        occupied.append((start, start + wanted, storages.last_use(members)))
        occupied.sort()
        offsets.update(dict.fromkeys(members, start))
        size = max(size, start + wanted)
    enough = len(offsets) >= LEAST_BUFFERS[device] or device == "cpu" and size >= LEAST
    return Workspace(size, offsets) if enough and offsets else Workspace()


def peaks(program: Program, kernels: Sequence[Kernel], steps: Sequence[MemoryStep], workspace: Workspace) -> tuple[int, int]:
    """The most bytes that a call has at one time, its inputs not counted: where inputs end with their last use, and where they are kept."""

    def size(names: Sequence[str]) -> int:
        layouts = [program.buffers[n].layout for n in names if n not in workspace.offsets]
        return sum(layout.dtype.itemsize * constant_product([layout.elements()]) for layout in layouts)

    taken = {old for step in steps for _, old in step.reuse}
    ended = ended_inputs(program, kernels)
    live = most = given = most_given = 0
    for n, step in enumerate(steps):
        live += size(step.allocate)
        most, most_given = max(most, live), max(most_given, live - given)
        live -= size([name for name in step.free if name not in taken])
        given += size(ended.get(n, ()))
    return workspace.size + most_given, workspace.size + most


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

    def __init__(
        self, program: Program, kernels: Sequence[Kernel], steps: Sequence[MemoryStep], alignment: int, largest: int
    ) -> None:
        self._program, self._alignment, self._largest = program, alignment, largest
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
            if not self._escaping & set(members) and all(placeable(self._program, m, self._largest) for m in members):
                found.append((self._born[name], members))
        return found

    def last_use(self, members: Sequence[str]) -> int:
        """The number of the last kernel that touches the piece."""
        return max(self._last[m] for m in members)

    def bytes(self, members: Sequence[str]) -> int:
        """Size, as a multiple of the alignment."""
        layouts = [self._program.buffers[m].layout for m in members]
        found = max(constant_size(layout.elements()) * layout.dtype.itemsize for layout in layouts)
        return max(-(-found // self._alignment), 1) * self._alignment


def _allocates(kernel: Kernel) -> bool:
    """Whether the host program, not the library, makes the memory of what is written."""
    return not isinstance(kernel, ExternKernel) or kernel.node.out_form is not None or kernel.node.target == "empty"


def _escaping(program: Program, kernels: Sequence[Kernel]) -> set[str]:
    found = {alias_root(program.buffers, b) for b in output_buffers(program)}
    for kernel in kernels:
        if isinstance(kernel, ExternKernel) and kernel.node.out_form is None and not kernel.node.target.startswith(NEW_RESULTS):
            found |= {alias_root(program.buffers, b) for b in kernel.reads}
    return found
