"""Rows that are split over several blocks: into how many parts, and what these keep for the stages behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from ...ir.body import Instruction, Ref
from ...ir.handlers import drop_unused
from ...schedule.plan import LoopKernel
from . import config as config_table
from .again import may_compute_again
from .printer import IndexPrinter, PythonPrinter
from .tiling import Tiling, numel

__all__ = ["WHOLE", "Partial", "Parts", "parts_of", "after_totals"]


@dataclasses.dataclass(frozen=True)
class Partial:
    """A reduction whose accumulators are kept in the workspace between stages."""

    name: str
    point: int
    dtype: torch.dtype
    kind: str
    arguments: Mapping[str, torch.dtype]


@dataclasses.dataclass(frozen=True)
class Parts:
    """Into how many parts rows are split: `most`, or, where sizes are open, as many as each launch finds within `limits`, `most` at most.

    block, step: rows of a block, and elements of a step. or_whole: one part is a kernel of its own, which a launch chooses too.
    """

    most: int
    limits: config_table.SplitLimits | None = None
    block: int = 1
    step: int = 1
    or_whole: bool = False

    @property
    def kind(self) -> str:
        """In the launch record's words."""
        return "" if self.most == 1 else f" split {self.most}" if self.limits is None else f" split at most {self.most}"

    def text(self, printer: IndexPrinter | PythonPrinter, tiling: Tiling, smallest: str, largest: str) -> str:
        """The number, in terms of sizes; smallest, largest: names of the functions of two numbers."""
        if self.limits is None:
            return str(self.most)
        rows, row, step = numel(tiling, "x"), numel(tiling, "r"), self.step * self.limits.steps
        blocks = f"{largest}(({printer.text(rows)} + {self.block - 1}) // {self.block}, 1)"
        enough = f"{self.limits.blocks} // {blocks}"
        if isinstance(rows, int):
            enough = str(self.limits.blocks // max(-(-rows // self.block), 1))
        if self.or_whole:  # many rows fill the device as they are
            enough = f"({enough}) * {smallest}({config_table.MULTIPROCESSORS - 1} // {blocks}, 1)"
        steps = row // step if isinstance(row, int) else f"({printer.text(row)}) // {step}"
        return f"{largest}({smallest}({smallest}({enough}, {steps}), {self.most}), 1)"


WHOLE = Parts(1)


def parts_of(kernel: LoopKernel, tiling: Tiling, shape: config_table.Shape, chosen: config_table.Config) -> Parts:
    ops = {i.op for p in kernel.passes for i in p.body.instructions}
    if not shape.looped or (kernel.scratch and not may_compute_again(kernel)) or not ops & {"scan", "reduce"}:
        return Parts(1)
    rows = numel(tiling, "x")
    if shape.kind != "looped" or (isinstance(rows, int) and isinstance(numel(tiling, "r"), int)):
        return Parts(max(config_table.splits(shape, chosen), 2 if tiling.beside > 1 else 1))
    block, step = chosen.constants["XBLOCK"], chosen.constants["RBLOCK"]
    # A scan in one part skips its first stage; a reduction in one part would launch two where one does.
    if not isinstance(rows, int) or rows < block * config_table.MULTIPROCESSORS:
        limits = config_table.split_limits(shape)
        return Parts(limits.most, limits, block, step, not shape.scans and not isinstance(rows, int))
    return Parts(1)


def after_totals(kernel: LoopKernel) -> LoopKernel:
    """A kernel with a scan as one whose first pass reduces what is scanned; any other as it is."""
    found = next(((p, n, i) for p in kernel.passes for n, i in enumerate(p.body.instructions) if i.op == "scan"), None)
    if found is None:
        return kernel
    (one_pass, position, (_, (name, kind, value, *places), dtype)), body = found, found[0].body
    before = list(body.instructions[:position])
    if dtype == torch.float32 and kind in ("sum", "prod"):  # a total so far is rounded once, where its part begins
        before.append(Instruction("to_dtype", (value, torch.float64), torch.float64))
        value = Ref(position)
    total = drop_unused([*before, Instruction("reduce", (name, kind, value, *places), None)])
    first = dataclasses.replace(one_pass, body=dataclasses.replace(body, instructions=total))
    return dataclasses.replace(kernel, passes=(first, *kernel.passes))
