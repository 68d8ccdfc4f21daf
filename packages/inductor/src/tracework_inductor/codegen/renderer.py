"""Renderer: what the pipeline needs of a device's code writer.

A kernel function takes, in this order, one pointer per `LoopKernel.buffers`, one per `LoopKernel.numbers` and one int64 per
`LoopKernel.sizes`.
The host program calls it by name with tensors' data pointers (cpp) or tensors (triton) and the sizes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from ..schedule.plan import KernelBatch, LoopKernel
from ..target import Capabilities


@dataclasses.dataclass(frozen=True)
class RenderedKernel:
    """The text of one kernel; `source` is free of the kernel's name and of buffer names, so equal kernels are equal text.

    source: with the placeholder KERNEL_NAME where its name goes.
    launch: what the launcher must know (JSON values only), such as grid and number of warps.
    """

    source: str
    signature: tuple[str, ...]
    launch: tuple[tuple[str, Any], ...] = ()


KERNEL_NAME = "KERNEL_NAME"


class Renderer(Protocol):
    """One per device type; stateless."""

    language: str
    capabilities: Capabilities

    def render(self, kernel: LoopKernel | KernelBatch) -> RenderedKernel:
        """The kernel as text; a batch where `capabilities.batches` says so."""

    def pack(self, kernels: Sequence[tuple[str, RenderedKernel]]) -> Sequence[Any]:
        """(name, rendered) pairs -> runtime.KernelSource records: one a kernel, or one for all."""
