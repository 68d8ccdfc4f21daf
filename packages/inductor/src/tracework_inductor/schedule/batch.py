"""Neighbouring small kernels of a GPU become one launch: what they do takes less time than launching them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ir.index import INT32_LIMIT, product
from .graph import alias_root
from .plan import Kernel, KernelBatch, LoopKernel

MOST_PARTS = 24
MOST_INSTRUCTIONS = 600
"""Over all parts: a batch takes the time to compile of all of them, one after the other."""
MOST_POINTS = 1 << 22
"""Of one part; more take longer than a launch, and would hold the registers that the greediest part needs."""


def batched(kernels: Sequence[Kernel], buffers: Mapping[str, Any]) -> list[Kernel]:
    """The kernels in the same order, runs of small ones that do not depend on each other as batches.

    Those that a graph for another device runs on the host stay as they are: their renderer has no batches.
    """
    host = {"cpu"} if any(b.layout.device.type != "cpu" for b in buffers.values()) else set()
    small = {k.name for k in kernels if k.device.type not in host and _is_small(k)}
    made: list[Kernel] = []
    for run in _runs(kernels, buffers, small):
        parts = tuple(kernel for kernel in run if isinstance(kernel, LoopKernel))
        made.append(run[0] if len(run) == 1 else KernelBatch(run[0].name, parts))
    return made


def _runs(kernels: Sequence[Kernel], buffers: Mapping[str, Any], small: set[str]) -> Iterator[list[Kernel]]:
    run: list[Kernel] = []
    for kernel in kernels:
        if run and not ({run[0].name, kernel.name} <= small and _joins(run, kernel, buffers)):
            yield run
            run = []
        run.append(kernel)
    if run:
        yield run


def _joins(run: list[Kernel], kernel: Kernel, buffers: Mapping[str, Any]) -> bool:
    return (
        len(run) < MOST_PARTS
        and run[0].device == kernel.device
        and sum(map(_instructions, (*run, kernel))) <= MOST_INSTRUCTIONS
        and all(_independent(k, kernel, buffers) for k in run)
    )


def _instructions(kernel: Kernel) -> int:
    return sum(len(p.body.instructions) for p in kernel.passes) if isinstance(kernel, LoopKernel) else 0


def _is_small(kernel: Kernel) -> bool:
    """Whether a kernel may be a part: pointwise, of sizes that are known."""
    if not isinstance(kernel, LoopKernel) or kernel.reduction_axes or kernel.sizes:
        return False
    points = product(a.size for a in kernel.axes)
    extents = [layout.elements() for layout in kernel.layouts.values()]
    few = isinstance(points, int) and points <= MOST_POINTS
    return few and all(isinstance(e, int) and e <= INT32_LIMIT for e in extents)


def _independent(first: Kernel, second: Kernel, buffers: Mapping[str, Any]) -> bool:
    """Whether neither writes what the other touches, by whatever name."""
    (reads, writes), (others_reads, others_writes) = (
        [{alias_root(buffers, b) for b in names} for names in (k.reads, k.writes)] for k in (first, second)
    )
    return not (writes & (others_reads | others_writes) or others_writes & reads)
