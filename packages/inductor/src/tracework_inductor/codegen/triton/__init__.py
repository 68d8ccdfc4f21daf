"""TritonRenderer: the renderer of CUDA devices."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tracework_runtime import KernelSource

from ...autotune.choose import Question
from ...schedule.plan import CoreKernel, KernelBatch, LoopKernel
from ...target import Capabilities
from ..renderer import KERNEL_NAME, RenderedKernel
from . import batch as _batch
from . import kernel as _kernel
from . import tuning as _tuning
from .config import COLUMN_BLOCKS
from .cores import CORES, tiles
from .sums import with_sums

__all__ = ["TritonRenderer"]


class TritonRenderer:
    """Writes Triton kernels. `rounds`: products are not contracted into the sums that follow them."""

    language = "triton"
    # A row's values stay in registers, are computed again, or go through a workspace, as the renderer sees fit.
    capabilities = Capabilities(row_scratch=1 << 40, batches=True, column_blocks=COLUMN_BLOCKS)

    def __init__(self, rounds: bool = False) -> None:
        self.rounds = rounds

    def render(self, kernel: LoopKernel | CoreKernel | KernelBatch) -> RenderedKernel:
        """The kernel as text."""
        if isinstance(kernel, CoreKernel):
            return CORES[kernel.node.core](kernel)
        if isinstance(kernel, KernelBatch):
            return _batch.render(dataclasses.replace(kernel, parts=tuple(map(with_sums, kernel.parts))))
        kernel = with_sums(kernel)
        return tiles.render(kernel) if kernel.core else _kernel.render(kernel)

    def question(self, kernel: LoopKernel, symbols: Any, numerics: str, device: str) -> Question | None:
        """The kernel as a choice of block sizes."""
        return _tuning.question(kernel, symbols, numerics, device)

    def pack(self, kernels: Sequence[tuple[str, RenderedKernel]]) -> Sequence[KernelSource]:
        """One record a kernel; equal kernels have equal text, and are compiled once."""
        entry = "kernel"
        more = {"fp_fusion": False} if self.rounds else {}
        return [
            KernelSource(
                name,
                "triton",
                rendered.source.replace(KERNEL_NAME, entry),
                rendered.signature,
                more | {k: [e.replace(KERNEL_NAME, entry) for e in v] if k == "entries" else v for k, v in rendered.launch},
            )
            for name, rendered in kernels
        ]
