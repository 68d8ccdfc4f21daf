"""What a loop kernel's block sizes are chosen between.

Only outer blocks and warps differ, and of kernels with sums only where these stay in their order: Triton gives the threads of a block places
along the row first, as many elements each as one load has, and what is left of them to the rows. So the order hangs on the row's block, the
warps, and the elements that a thread has; not on the number of rows, as long as there are enough for whole loads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...autotune.choose import Question
from ...autotune.record import Candidate, Problem, bucket, fingerprint
from ...ir.body import LoopBody, format_instruction
from ...ir.index import hint
from ...schedule.plan import LoopKernel, Pass
from . import config as config_table
from . import dot
from .config import Config, Shape
from .parts import parts_of
from .shaped import shaped
from .tiling import Tiling, tile

__all__ = ["body_text", "question"]

_LOAD = 16
"""Bytes that a thread loads at once."""
_NAMED = re.compile(r"[A-Za-z_]\w*")


def question(kernel: LoopKernel, symbols: Any, numerics: str, device: str) -> Question | None:
    """The kernel as a choice of block sizes; None for one that has none, or that cannot be run on numbers that nobody computed.

    symbols: the SymbolTable of its sizes, where it has some. device: the name of its Device.
    """
    extents = [*kernel.sizes, *(layout.elements() for layout in kernel.layouts.values())]
    known = all(isinstance(extent, int) or symbols.has_hint(extent) for extent in extents)
    if kernel.core or kernel.numbers or not known or not _runs_on_anything(kernel):
        return None
    tiling = tile(kernel)
    if dot.product(kernel, tiling) is not None:
        return None
    kernel, tiling, shape = shaped(kernel, tiling)
    sums = _Sums(kernel, tiling, shape)

    def candidate(config: Config) -> Candidate:
        return Candidate(shape.kind, config.record(), sums.order(config))

    def neighbours(of: Candidate) -> Sequence[Candidate]:
        found = config_table.neighbours(Config(**of.config))
        return [candidate(config) for config in found if config_table.is_sensible(shape, config)]

    first = candidate(config_table.configs(shape)[0])
    return Question(_problem(kernel, shape, symbols, numerics, device), (first, *neighbours(first)), neighbours)


def _runs_on_anything(kernel: LoopKernel) -> bool:
    """Whether it neither reads nor writes at computed places, which have to be inside of something, and adds to nothing."""
    instructions = [i for p in kernel.passes for i in p.body.instructions]
    return not any(i.op == "indirect" or (i.op == "store" and i.args[3] != "set") for i in instructions)


class _Sums:
    """In which order a kernel adds up what it reduces or scans."""

    def __init__(self, kernel: LoopKernel, tiling: Tiling, shape: Shape) -> None:
        self.kernel, self.tiling, self.shape = kernel, tiling, shape
        self.itemsizes = sorted({layout.dtype.itemsize for layout in kernel.layouts.values()})

    def order(self, config: Config) -> str:
        """Equal for configs with equal results to the last bit."""
        if self.tiling.group("r") is None:
            return ""
        parts = parts_of(self.kernel, self.tiling, self.shape, config)
        a_thread = max(config.elements // (32 * config.num_warps), 1)
        loads = " ".join(str(min(_LOAD // size, a_thread)) for size in self.itemsizes)
        rows = f" of {config.constants['XBLOCK']}" if self.tiling.contiguous == "x" else ""
        split = f", {parts.most} parts" if parts.most > 1 else ""
        split += f" of {parts.block} x {parts.step}" if parts.limits is not None else ""
        return f"rows of {config.constants['RBLOCK']}{rows} by {config.num_warps} warps, loads of {loads}{split}"


def _problem(kernel: LoopKernel, shape: Shape, symbols: Any, numerics: str, device: str) -> Problem:
    layouts = [kernel.layouts[b] for b in kernel.buffers]
    moved = sum(layout.dtype.itemsize * hint(layout.elements(), symbols) for layout in layouts)
    points = {"x": shape.outer, "y": shape.second, "r": shape.inner}
    sizes = {name: bucket(n) if kernel.sizes else n for name, n in points.items() if n != 1}
    return Problem(
        shape.kind,
        tuple(sizes.items()),
        tuple(str(layout.dtype).removeprefix("torch.") for layout in layouts),
        (),  # the body reads by strides
        device,
        epilogue=fingerprint(body_text(kernel, kernel.passes)),
        numerics=numerics,
        bytes=moved,
    )


def body_text(kernel: LoopKernel, passes: Sequence[Pass]) -> list[str]:
    """Some passes and what they run over, with the names of the kernel alone."""
    names = {buffer: f"p{n}" for n, buffer in enumerate(kernel.buffers)}
    names |= {str(symbol): f"ks{n}" for n, symbol in enumerate(kernel.sizes)}
    lines = [f"{axis.var} < {axis.size}" for axis in (*kernel.axes, *kernel.reduction_axes)]
    for one in passes:
        lines += [one.level, *_lines(one.body, names)]
    return [_NAMED.sub(lambda found: names.get(found.group(), found.group()), line) for line in lines]


def _lines(body: LoopBody, names: dict[str, str]) -> list[str]:
    """The instructions; what they give names to is put into `names`."""
    for i in body.instructions:
        if i.args and isinstance(i.args[0], str):
            names.setdefault(i.args[0], f"v{len(names)}")
    return [format_instruction(n, i) for n, i in enumerate(body.instructions)]
