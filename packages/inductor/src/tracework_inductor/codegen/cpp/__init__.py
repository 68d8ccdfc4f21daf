"""CppRenderer: CPU kernels as freestanding C++."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from tracework_runtime import KernelSource

from ...schedule.plan import CoreKernel, KernelBatch, LoopKernel
from ...target import Capabilities
from ..renderer import KERNEL_NAME, RenderedKernel
from . import table
from .blocks import CHAIN
from .cores import CORES
from .kernel import CppKernel
from .prefix import prefix

FLAGS = ("-fwrapv", "-ffp-contract=off", "-fno-semantic-interposition", "-fno-plt", "-fno-tree-loop-distribute-patterns")
"""Integers wrap around, as eager's do. Products are rounded before they are added: scores that are equal in eager (symmetric boxes, say)
are equal here, so that comparisons, maxima and sorts choose the same. Terms of lanes that are plain loads stay in registers: a loop that
copies would become a call or moves through memory."""
FREE = ("-fno-trapping-math",)
"""Not where each operation has eager's bits: under it g++ makes a truncation, with its -0.0, of a conversion to integers and back."""

WHERE_EQUAL = ("-fno-unswitch-loops",)
"""Of kernels that ask whether numbers are equal: of a loop that it makes of the case in which an outer index is a number, g++ 12 reads other
places with AVX-512. Others have their conditions taken out of loops, those of padding among them, which doubles the speed of some."""
EQUAL = re.compile(r"\(v\w+ [!=]= v\w+\)")
"""As kernels of loops ask it, of values by name."""

REDUCED_TYPES = ("float", "double", "int64_t", "int32_t", "int16_t", "int8_t", "uint8_t")


def declared() -> str:
    """OpenMP reductions that keep NaN."""
    return "".join(
        f"#pragma omp declare reduction(tw_{kind} : {t} : omp_out = tw_{kind}(omp_out, omp_in))"
        f" initializer(omp_priv = tw_{start}<{t}>())\n"
        for t in REDUCED_TYPES
        for kind, start in (("max", "lowest"), ("min", "highest"))
    )


@dataclasses.dataclass(frozen=True)
class CppRenderer:
    """Text for one translation unit per graph."""

    grain: int = 16384
    rounds: bool = False  # every operation to its own dtype, as eager does
    language: str = "cpp"
    capabilities: Capabilities = Capabilities(row_scratch=128 * 1024, column_rows=CHAIN, unrolls=True, tables=True)

    def render(self, kernel: LoopKernel | CoreKernel | KernelBatch) -> RenderedKernel:
        """The kernel as text."""
        if isinstance(kernel, CoreKernel):
            return CORES[kernel.node.core](kernel, self.grain)
        if isinstance(kernel, KernelBatch):
            return table.render(kernel, self.grain)
        return CppKernel(kernel, self.grain).render()

    def pack(self, kernels: Sequence[tuple[str, RenderedKernel]]) -> Sequence[Any]:
        """All kernels in one file, or two; each record names its own function."""
        flags = [*FLAGS, *(() if self.rounds else FREE)]
        asking: list[tuple[str, RenderedKernel]] = []
        others: list[tuple[str, RenderedKernel]] = []
        for pair in kernels:
            (asking if EQUAL.search(pair[1].source) else others).append(pair)
        made = {record.name: record for record in (*_in_one_file(asking, [*flags, *WHERE_EQUAL]), *_in_one_file(others, flags))}
        return [made[name] for name, _ in kernels]


def _in_one_file(kernels: Sequence[tuple[str, RenderedKernel]], flags: Sequence[str]) -> list[KernelSource]:
    body = "\n".join(k.source.replace(KERNEL_NAME, name) for name, k in kernels)
    source = prefix() + declared() + body + "\n"
    return [
        KernelSource(name, "cpp", source, k.signature, {"entry": name, "flags": flags, **dict(k.launch)}) for name, k in kernels
    ]
