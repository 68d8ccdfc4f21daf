"""What the choice of a configuration, and of a kernel's form, depends on: its rows, its loads, its products."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...ir.body import Instruction, LoopBody, Ref, axes_behind
from ...ir.index import constant_product, constant_size
from ...ir.scalar_ops import COLUMNS
from ...schedule.plan import LoopKernel
from . import config as config_table
from .again import may_compute_again
from .tiling import MOST_HELD_ACROSS, MOST_SUMMED_ACROSS, Tiling

__all__ = [
    "shape_of",
    "products_of",
    "read_once",
    "beside",
    "loading",
    "loads_of_larger",
    "scans_rows",
    "blocks_of_columns",
]

# Of which the choice between loads consists.
_LOADING = frozenset(("load", "where", "constant", "index_expr", "lt", "ge", "logical_and"))
# Bytes that a thread loads at once.
_LOAD = 16


def shape_of(kernel: LoopKernel, tiling: Tiling) -> config_table.Shape:
    hint = {group.prefix: constant_product(a.size for a in group.axes) for group in tiling.groups}
    loads = sum(1 for p in kernel.passes for _ in p.body.loads())
    inner = tiling.group("r")
    products, rows = products_of(kernel), len(tiling.points())
    if inner is None:
        kind = "jumps" if tiling.jumps else "tiled" if tiling.group("y") else "pointwise"
    elif products and tiling.contiguous == "x":
        kind = "product columns"
    elif products:
        kind = config_table.product_kind(hint["r"], rows) if isinstance(inner.numel, int) else "product"
    elif blocks_of_columns(kernel):
        kind = "rows and columns"
    elif any(i.op == "argsort" for p in kernel.passes for i in p.body.instructions):
        kind = "sorted"
    else:
        row = inner.numel
        kind = "persistent" if isinstance(row, int) and row <= _longest_row(tiling, hint, kernel) else "looped"
    held, streams = len(kernel.scratch) + loads, _streams(kernel, tiling)
    shape = config_table.Shape(kind, hint["x"], hint.get("r", 1), tiling.contiguous, loads, hint.get("y", 1), held, streams)
    shape = dataclasses.replace(shape, scans=scans_rows(kernel))
    if kind == "rows and columns":
        each, shared = _loaded_for_each(kernel, tiling)
        return dataclasses.replace(shape, itemsize=each, of_all_rows=shared)
    if not products:
        return shape
    largest = max((kernel.layouts[b] for b in kernel.reads), key=lambda layout: constant_product(layout.sizes))
    repeats = any(i.op == "reduce" and i.args[1] != "dot" for p in kernel.passes for i in p.body.instructions)
    return dataclasses.replace(shape, products=products, rows=rows, itemsize=largest.dtype.itemsize, repeats=repeats)


def _streams(kernel: LoopKernel, tiling: Tiling) -> int:
    """How many loads are inside rows: of those that lie across a row's neighbours, what does not go along the row is loaded once a block."""
    found = [i.args[1] for p in kernel.passes if p.level == "inner" for i in p.body.loads()]
    rows = tiling.group("r")
    if tiling.beside == 1 or rows is None:
        return len(found)
    return sum(not isinstance(index, int) and any(a.var in index.free_symbols for a in rows.axes) for index in found)


def _loaded_for_each(kernel: LoopKernel, tiling: Tiling) -> tuple[int, int]:
    """Bytes that are loaded for each element of a row: for no other one, and for all rows."""
    dims = [{a.var for a in group.axes} for group in tiling.groups]
    row = {a.var for a in kernel.reduction_axes}
    loads = {(i.args[0], i.args[1]) for p in kernel.passes if p.level == "inner" for i in p.body.loads()}
    own, shared = 0, 0
    for buffer, index in loads:
        found = set() if isinstance(index, int) else index.free_symbols
        if all(found & some for some in dims):
            own += kernel.layouts[buffer].dtype.itemsize
        elif found & row:
            shared += kernel.layouts[buffer].dtype.itemsize
    return own, shared


def _longest_row(tiling: Tiling, hint: dict[str, int], kernel: LoopKernel) -> int:
    """Up to how many elements a row is held in registers."""
    if tiling.beside > 1:
        return 0
    if tiling.contiguous == "x":
        return MOST_HELD_ACROSS if kernel.scratch else MOST_SUMMED_ACROSS
    splittable = not kernel.scratch or may_compute_again(kernel)
    if splittable and hint["x"] < config_table.MULTIPROCESSORS // 4:
        return 4096  # few long rows: split them
    return config_table.MAX_PERSISTENT


def products_of(kernel: LoopKernel) -> int:
    """How many products a kernel computes."""
    return sum(i.op == "reduce" and i.args[1] == "dot" for p in kernel.passes for i in p.body.instructions)


def read_once(kernel: LoopKernel) -> frozenset[str]:
    """Of what the large matrices of products are loaded from."""
    found: set[str] = set()
    axes = {a.var for a in kernel.axes}, {a.var for a in kernel.reduction_axes}
    for body in (p.body for p in kernel.passes if p.level == "inner"):
        for product in (i for i in body.instructions if i.op == "reduce" and i.args[1] == "dot"):
            for load in (body.instructions[n] for n in loads_of_larger(body, product)):
                symbols: frozenset[Any] = getattr(load.args[1], "free_symbols", frozenset()) if load.op == "load" else frozenset()
                if all(symbols & some for some in axes):
                    found.add(load.args[0])
    return frozenset(found)


def beside(kernel: LoopKernel, tiling: Tiling) -> tuple[Any, int] | None:
    """The fastest variable of a product's rows, and how many elements of its other matrix 16 bytes have."""
    r = tiling.group("r")
    assert r is not None
    axis = r.axes[-1]
    sizes = [kernel.layouts[i.args[0]].dtype.itemsize for p in kernel.passes if p.level == "inner" for i in p.body.loads()]
    elements = _LOAD // min((n for n in sizes if n > 1), default=1)
    return (axis.var, elements) if isinstance(axis.size, int) and axis.size % elements == 0 else None


def loading(body: LoopBody) -> list[int]:
    """Which instructions load, or choose between loads, in order."""
    found: list[int] = []
    for n, i in enumerate(body.instructions):
        if i.op in _LOADING and all(a.position in found for a in i.args if isinstance(a, Ref)):
            found.append(n)
    return found


def loads_of_larger(body: LoopBody, product: Instruction) -> list[int]:
    """What a product's larger factor is loaded by, in order: loads, and choices between them."""
    factors = sorted(product.args[2:], key=lambda ref: constant_product(a.size for a in axes_behind(body, ref)))
    behind = body.behind(factors[-1].position)
    return [n for n in loading(body) if n in behind and body.instructions[n].op in ("load", "where")]


def blocks_of_columns(kernel: LoopKernel) -> int:
    """How many blocks keep sums of columns; 0 if there are none to keep."""
    kept = [i.args[0] for p in kernel.passes for i in p.body.stores() if i.args[3] == COLUMNS]
    return constant_size(kernel.layouts[kept[0]].sizes[0]) if kept else 0


def scans_rows(kernel: LoopKernel) -> bool:
    """Whether its rows are scanned."""
    return any(i.op == "scan" for p in kernel.passes for i in p.body.instructions)
