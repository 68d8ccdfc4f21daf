"""What a kernel moves and computes, where its sizes say so: bytes of memory and operations on floats."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..ir.body import Instruction, LoopBody
from ..ir.index import Expr, Size, product
from ..ir.scalar_ops import COLUMNS, SCALAR_OPS
from ..schedule.plan import CoreKernel, ExternKernel, Kernel, KernelBatch, LoopKernel
from .library_work import core_flops, library_bytes, library_flops

__all__ = ["traffic"]


def traffic(kernel: Kernel, buffers: Mapping[str, Any]) -> dict[str, int | str | None]:
    """Numbers, or texts over sizes.

    bytes: of the memory that it reads and that it writes, each element once, those at computed places as often as they are touched.
    flops: one for each operation with a float for a result that is no choice between numbers, two for each term of a product (of a core, and
      of the library, its products alone; None for an operator of the library that no rule knows).
    """
    if isinstance(kernel, ExternKernel):
        flops = library_flops(kernel.node, buffers)
        return {"bytes": _extent(library_bytes(kernel.node, buffers)), "flops": None if flops is None else _extent(flops)}
    parts = kernel.parts if isinstance(kernel, KernelBatch) else (kernel,)
    found: dict[str, Size] = {}
    for part in parts:
        for name, count in _of_one(part).items():
            found[name] = found.get(name, 0) + count
    return {name: _extent(count) for name, count in found.items()}


def _extent(count: Size) -> int | str:
    return str(count) if isinstance(count, Expr) else int(count)


def _of_one(kernel: LoopKernel | CoreKernel) -> Mapping[str, Size]:
    if isinstance(kernel, CoreKernel):
        views = [view for view in (*kernel.node.operands, *kernel.node.results) if view is not None]
        moved_bytes = sum((product(v.sizes) * kernel.layouts[v.buffer].dtype.itemsize for v in views), start=0)
        return {"bytes": moved_bytes, "flops": core_flops(kernel.node.core, [o for o in kernel.node.operands if o is not None])}
    points = product([axis.size for axis in kernel.axes])
    steps = points * product([axis.size for axis in kernel.reduction_axes])
    moved: dict[tuple[str, str], Size] = {}
    places: dict[tuple[str, str], set[Size]] = {}
    flops: Size = 0
    for one in kernel.passes:
        count = steps if one.level == "inner" else points
        computed = {i.args[2] for i in one.body.instructions if i.op == "indirect"}
        for instruction in one.body.instructions:
            flops = flops + _operations(instruction, one.body) * count
            if instruction.op in ("load", "store"):
                buffer, index = instruction.args[:2]
                if isinstance(index, Expr) and index.free_symbols & computed:
                    moved.setdefault((instruction.op, buffer), count)
                elif COLUMNS in instruction.args[3:]:  # at the block's own place
                    moved.setdefault((instruction.op, buffer), kernel.layouts[buffer].elements())
                else:
                    places.setdefault((instruction.op, buffer), set()).add(index)
    sizes = {axis.var: axis.size for axis in (*kernel.axes, *kernel.reduction_axes)}
    for (op, buffer), indices in places.items():
        moved.setdefault((op, buffer), _elements(indices, sizes, kernel.layouts[buffer].elements()))
    return {"bytes": sum((n * kernel.layouts[b].dtype.itemsize for (_, b), n in moved.items()), start=0), "flops": flops}


def _elements(indices: Iterable[Size], sizes: Mapping[Expr, Size], most: Size) -> Size:
    """How many of `most` elements lie at these indices, which loops with axes of these sizes go through."""
    found = [product([sizes[v] for v in i.free_symbols if v in sizes]) if isinstance(i, Expr) else 1 for i in indices]
    count = sum(found, start=0)
    return count if isinstance(count, int) and isinstance(most, int) and count < most else most


def _operations(instruction: Instruction, body: LoopBody) -> int:
    combines = instruction.op in ("reduce", "scan")
    dtype = body.instructions[instruction.args[2].position].dtype if combines else instruction.dtype
    if dtype is None or not (dtype.is_floating_point or dtype.is_complex):
        return 0
    if combines:
        return 2 if instruction.args[1] == "dot" else 1
    return 2 if instruction.op == "fma" else int(instruction.op in SCALAR_OPS and instruction.op != "where")
