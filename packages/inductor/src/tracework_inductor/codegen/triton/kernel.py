"""A LoopKernel as Triton source: pointwise, rows held in registers, or rows walked in a loop.

`render` reads top to bottom: tile the axes, choose the shape and its configs, write each stage's function, describe the
launch. A looped reduction over few rows is split over several blocks: one stage a reduction pass, which keep partial
results in a workspace, each stage combining those of the stages before it. A running sum of few long rows is split as a reduction, whose
parts' totals are where the parts of the sum begin. Where sizes are known at a launch only, so is the number of parts.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from ...ir.index import INT32_LIMIT, Size, constant_size
from ...schedule.plan import LoopKernel, index_checks
from ..renderer import KERNEL_NAME, RenderedKernel
from . import config as config_table
from . import dot
from .function import Function
from .header import launch_record, source_text
from .parts import Partial, Parts, after_totals, parts_of
from .printer import PythonPrinter, fits_text
from .shape import blocks_of_columns, shape_of
from .shaped import shaped
from .text_rules import POINTER
from .tiling import Tiling, numel, tile

__all__ = ["Part", "part", "render", "repeatable"]


def render(kernel: LoopKernel) -> RenderedKernel:
    """The Triton source of a kernel, its signature and its launch record."""
    tiling = tile(kernel)
    if (on_tensor_cores := dot.product(kernel, tiling)) is not None:
        return _product(on_tensor_cores)
    kernel, tiling, shape = shaped(kernel, tiling)
    config = config_table.Config(**kernel.config) if kernel.config else config_table.configs(shape)[0]
    parts = parts_of(kernel, tiling, shape, config)
    names = {symbol: f"ks{n}" for n, symbol in enumerate(kernel.sizes)}
    names |= {symbol: f"number{n}" for n, symbol in enumerate(kernel.numbers)}
    narrow = _fits_statically(kernel, tiling)
    if parts.most > 1:
        functions, spread, workspace = _split_stages(kernel, tiling, shape, config, names, narrow, parts)
    else:
        writer = Function(kernel, tiling, shape, config, names, narrow, split=shape.looped)
        text, kept = writer.write(), writer.kept
        functions, spread = [_with_workspace(text, len(kept))], ["1"]
        total = PythonPrinter(names).text(numel(tiling, "x") * numel(tiling, "r"))
        workspace = [{"dtype": _workspace_dtype(dtype), "elements": total} for dtype in kept.values()]
    grids = [_grid(kernel, tiling, names, n) for n in spread]
    signature = tuple(POINTER[kernel.layouts[b].dtype] for b in kernel.buffers)
    signature += (POINTER[torch.int64],) * len(kernel.numbers) + ("i64",) * len(kernel.sizes)
    entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
    record = launch_record(
        entries=entries,
        grids=grids,
        configs=[config.record()],
        fits32=None if narrow else fits_text(_extents(kernel, tiling), {s: names[s] for s in kernel.sizes}),
        workspace=workspace,
        repeatable=repeatable(kernel),
        kind=shape.kind + parts.kind,
        checks=bool(index_checks(kernel)),
    )
    return RenderedKernel(source_text(functions, entries), signature, record)


def _product(product: dot.Product) -> RenderedKernel:
    kernel, tiling = product.kernel, product.tiling
    narrow = _fits_statically(kernel, tiling)
    functions = product.functions(narrow)
    entries = [KERNEL_NAME + (f"_{n}" if n else "") for n in range(len(functions))]
    record = launch_record(
        entries=entries,
        grids=product.grids,
        configs=[product.config.record()],
        fits32=None if narrow else fits_text(_extents(kernel, tiling), {}),
        workspace=product.workspace,
        repeatable=repeatable(kernel),
        kind="product on tensor cores" + (f" split {product.parts}" if product.parts > 1 else ""),
        checks=bool(index_checks(kernel)),
    )
    signature = tuple(POINTER[kernel.layouts[b].dtype] for b in kernel.buffers)
    return RenderedKernel(source_text(functions, entries), signature, record)


@dataclasses.dataclass(frozen=True)
class Part:
    """A kernel without a launch of its own: its function, which is told the number of its block, and how many blocks there are."""

    function: str
    config: config_table.Config
    blocks: int


def part(kernel: LoopKernel) -> Part:
    """A pointwise kernel of known sizes as part of a batch."""
    tiling = tile(kernel)
    shape = shape_of(kernel, tiling)
    chosen = config_table.configs(shape)[0]
    counts = [-(-constant_size(g.numel) // chosen.constants[f"{g.prefix.upper()}BLOCK"]) for g in tiling.groups]
    return Part(Function(kernel, tiling, shape, chosen, {}, True, told=True).write(), chosen, math.prod(counts))


def repeatable(kernel: LoopKernel) -> bool:
    """Whether running it twice gives what running it once gives, so that it can be measured where it stands."""
    stored = {i.args[0] for p in kernel.passes for i in p.body.stores()}
    loaded = {i.args[0] for p in kernel.passes for i in p.body.loads()}
    return not stored & loaded and all(i.args[3] == "set" for p in kernel.passes for i in p.body.stores())


def _extents(kernel: LoopKernel, tiling: Tiling) -> list[Size]:
    """Elements of every buffer, and of scratch that may go to memory."""
    extents = [layout.elements() for layout in kernel.layouts.values()]
    return [*extents, *([numel(tiling, "x") * numel(tiling, "r")] if kernel.scratch else [])]


def _fits_statically(kernel: LoopKernel, tiling: Tiling) -> bool:
    extents = _extents(kernel, tiling)
    return all(isinstance(e, int) and e <= INT32_LIMIT for e in extents) and not kernel.sizes


def _grid(kernel: LoopKernel, tiling: Tiling, names: dict[Any, str], parts: str) -> str:
    printer = PythonPrinter(names)
    if kept := blocks_of_columns(kernel):
        return str(kept)
    blocks = [f"(-(-({printer.text(g.numel)}) // {g.prefix.upper()}BLOCK))" for g in tiling.groups if g.prefix in ("x", "y")]
    return " * ".join([*blocks, *([parts] if parts != "1" else [])])


def _split_stages(
    kernel: LoopKernel,
    tiling: Tiling,
    shape: config_table.Shape,
    config: config_table.Config,
    names: dict[Any, str],
    narrow: bool,
    parts: Parts,
) -> tuple[list[str], list[str], list[dict[str, str]]]:
    """One function for each pass that reduces, and one for what follows the last of them; in how many parts each
    runs; and the workspace."""
    printer = PythonPrinter(names)
    count = parts.text(printer, tiling, "min", "max")
    kernel = after_totals(kernel)
    ends = [n + 1 for n, p in enumerate(kernel.passes) if any(i.op == "reduce" for i in p.body.instructions)]
    ends.append(len(kernel.passes))
    functions, spread, start = [], [], 0
    several = f" * ({count} > 1)" if parts.or_whole else ""
    if parts.or_whole:
        functions.append(Function(kernel, tiling, shape, config, names, narrow, split=True).write())
        spread.append(f"({count} == 1)")
    partials: list[Partial] = []
    for end in ends:
        split = any(p.level == "inner" for p in kernel.passes[start:end])
        writer = Function(
            kernel,
            tiling,
            shape,
            config,
            names,
            narrow,
            parts=parts if split else None,
            combined=parts,
            partials=list(partials),
            split=True,
        )
        functions.append(writer.write(start, end))
        spread.append(f"{count if split else '1'}{several}" if several or split else "1")
        partials += writer.made
        start = end
    needed = count
    if parts.or_whole or (shape.scans and parts.limits is not None):  # no part begins behind another
        needed = f"{count} * ({count} > 1)"
    if shape.scans and parts.limits is not None:
        spread[0] = needed
    dtypes = {argument: dtype for p in partials for argument, dtype in p.arguments.items()}
    elements = f"({printer.text(numel(tiling, 'x'))}) * {needed}"
    workspace = [{"dtype": _workspace_dtype(dtype), "elements": elements} for dtype in dtypes.values()]
    return [_with_workspace(f, len(dtypes)) for f in functions], spread, workspace


def _workspace_dtype(dtype: torch.dtype) -> str:
    half = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
    return str(half.get(dtype, dtype)).removeprefix("torch.")


def _with_workspace(function: str, count: int) -> str:
    return function.replace("WORKSPACE", "".join(f"ws{n}, " for n in range(count)))
