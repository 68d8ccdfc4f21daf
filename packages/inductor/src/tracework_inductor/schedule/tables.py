"""Equal kernels of the CPU over tensors of any length become one function over a table of what each of them touches.

A step of an optimizer does the same for each of hundreds of parameters. As kernels of their own these take a compilation and a launch each,
and each is shared out to the threads by itself; as rows of a table they are compiled once, whatever their number, and shared out together.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ir.body import Axis, Instruction, LoopBody
from ..ir.index import Expr, Size, constant_product, substitute, symbol
from ..ir.scalar_ops import SCALAR_OPS
from .graph import alias_root
from .plan import CoreKernel, ExternKernel, Kernel, KernelBatch, LoopKernel, Pass

LEAST_ROWS = 4
"""Fewer are as well off alone."""
LARGEST_RESULT = 1 << 25
"""Bytes of a new result: more go past the caches, which loops of a known length do."""
SMALL = 1 << 12
"""Bytes of a result that may be there early: what its memory holds meanwhile is nothing."""
OPS = frozenset({"load", "store", "constant", "to_dtype", "bitcast", *SCALAR_OPS})
PLACE, LENGTH = symbol("x0", 0, None), symbol("n0", 0, None)


@dataclasses.dataclass(frozen=True)
class Row:
    """What a kernel over at most one axis does, and what with.

    kernel: over LENGTH elements of buffers p0, p1, ..., which lie where its first accesses do; equal for equal work.
    operands: which buffers these are, and how many elements behind their first they begin.
    """

    kernel: LoopKernel
    operands: tuple[tuple[str, int], ...]
    length: int

    def work(self) -> Any:
        """Equal for rows of one table."""
        return self.kernel.device, len(self.kernel.axes), self.kernel.passes, tuple(v.dtype for v in self.kernel.layouts.values())


def row_of(kernel: Kernel) -> Row | None:
    """A kernel as a row; None for one that reduces, or reads computed places, or walks memory otherwise than along one axis."""
    if not isinstance(kernel, LoopKernel) or kernel.core or len(kernel.axes) > 1 or len(kernel.passes) != 1:
        return None
    if kernel.reduction_axes or kernel.scratch or kernel.sizes or kernel.numbers:
        return None
    var, length = kernel.axes[0] if kernel.axes else (PLACE, 1)
    body = kernel.passes[0].body
    if not isinstance(length, int) or length < 1 or any(i.op not in OPS for i in body.instructions):
        return None
    firsts: dict[str, int] = {}
    for i in body.instructions:
        if i.op in ("load", "store"):
            first = _first(i, var)
            if first is None:
                return None
            firsts[i.args[0]] = min(first, firsts.get(i.args[0], first))
    names = {b: f"p{n}" for n, b in enumerate(kernel.buffers)}

    def told(i: Instruction) -> Instruction:
        if i.op not in ("load", "store"):
            return i
        buffer, index, *rest = i.args
        return i._replace(args=(names[buffer], substitute(index, {var: PLACE}) - firsts[buffer], *rest))

    axes = (Axis(PLACE, LENGTH),) if kernel.axes else ()
    row = dataclasses.replace(
        kernel,
        name="row",
        axes=axes,
        passes=(Pass("outer", LoopBody(axes, (), tuple(map(told, body.instructions)))),),
        buffers=tuple(names.values()),
        layouts={names[b]: layout for b, layout in kernel.layouts.items()},
        sizes=(LENGTH,) if axes else (),
        reads=frozenset(names[b] for b in kernel.reads),
        writes=frozenset(names[b] for b in kernel.writes),
    )
    return Row(row, tuple((b, firsts[b]) for b in kernel.buffers), length)


def _first(i: Instruction, var: Any) -> int | None:
    """The place of the first step of an access that goes on by equal steps, forwards."""
    if i.op == "store" and i.args[3] != "set":
        return None
    index: Size = i.args[1]
    if not isinstance(index, Expr):
        return index
    affine = index.as_affine()
    if affine is None or affine[1].keys() != {var} or affine[1][var] < 0:
        return None
    return affine[0]


def in_tables(kernels: Sequence[Kernel], buffers: Mapping[str, Any]) -> list[Kernel]:
    """The kernels, equal ones of the CPU that do not depend on each other as batches, where the first of them was.

    A row goes there from further down where nothing in between touches what it touches, or may raise, and where no memory is held longer for
    that: what it writes is an input, or small, or all in between are rows, too.
    """
    rows = {k.name: row for k in kernels if k.device.type == "cpu" and (row := row_of(k)) and not _large(k, buffers)}
    count = Counter(row.work() for row in rows.values())
    table = _Order(buffers)
    for kernel in kernels:
        row = rows.get(kernel.name)
        table.add(kernel, row.work() if row is not None and count[row.work()] >= LEAST_ROWS else None)
    return list(table.kernels())


def _large(kernel: Kernel, buffers: Mapping[str, Any]) -> bool:
    read = {alias_root(buffers, b) for b in kernel.reads}
    return any(_bytes(b, buffers) >= LARGEST_RESULT for b in kernel.writes if alias_root(buffers, b) not in read)


def _bytes(name: str, buffers: Mapping[str, Any]) -> int:
    layout = buffers[name].layout
    return constant_product([layout.elements()]) * layout.dtype.itemsize


def _may_raise(kernel: Kernel) -> bool:
    if isinstance(kernel, (CoreKernel, ExternKernel)):
        return kernel.node.may_raise
    return any(True for p in kernel.passes for _ in p.body.checks())


class _Order:
    """Kernels in order, some of them together."""

    def __init__(self, buffers: Mapping[str, Any]) -> None:
        self._buffers = buffers
        self._steps: list[list[Kernel]] = []
        self._open: dict[Any, int] = {}
        self._written: dict[str, int] = {}
        self._touched: dict[str, int] = {}
        self._raising = -1
        self._alone = -1  # the last step of no table

    def add(self, kernel: Kernel, work: Any) -> None:
        """The next kernel; work: what it has in common with others of its table, None for one of no table."""
        reads = {alias_root(self._buffers, b) for b in kernel.reads}
        writes = {alias_root(self._buffers, b) for b in kernel.writes}
        at = self._open.get(work, -1) if work is not None else -1
        if at < 0 or at <= self._latest(reads, writes) or at < self._alone and not self._may_be_early(writes):
            at = len(self._steps)
            self._steps.append([])
            if work is not None:
                self._open[work] = at
            else:
                self._alone = at
        self._steps[at].append(kernel)
        for name in writes:
            self._written[name] = max(at, self._written.get(name, -1))
        for name in reads | writes:
            self._touched[name] = max(at, self._touched.get(name, -1))
        if _may_raise(kernel):
            self._raising = at

    def _latest(self, reads: set[str], writes: set[str]) -> int:
        """The last step that has to come before."""
        steps = [self._written.get(b, -1) for b in reads] + [self._touched.get(b, -1) for b in writes]
        if any(self._is_input(b) for b in writes):
            steps.append(self._raising)
        return max(steps, default=-1)

    def _may_be_early(self, writes: set[str]) -> bool:
        return all(self._is_input(b) or _bytes(b, self._buffers) <= SMALL for b in writes)

    def _is_input(self, name: str) -> bool:
        return self._buffers[name].kind == "input"

    def kernels(self) -> Iterator[Kernel]:
        """All of them."""
        for step in self._steps:
            if len(step) < LEAST_ROWS:
                yield from step
            else:
                yield KernelBatch(step[0].name, tuple(k for k in step if isinstance(k, LoopKernel)), is_table=True)


__all__ = ["LENGTH", "PLACE", "Row", "in_tables", "row_of"]
