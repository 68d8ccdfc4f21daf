"""CppRenderer: CPU kernels as freestanding C++."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tracework_runtime import KernelSource

from ...schedule.plan import LoopKernel
from ...target import Capabilities
from ..renderer import KERNEL_NAME, RenderedKernel
from .kernel import CppKernel
from .prefix import prefix

FLAGS = ("-fno-trapping-math", "-fno-semantic-interposition", "-fno-plt")

DECLARED = """
#define TW_DECLARE(T) _Pragma("omp declare reduction(tw_max : T : omp_out = tw_max(omp_out, omp_in)) initializer(omp_priv = tw_lowest<T>())") \\
  _Pragma("omp declare reduction(tw_min : T : omp_out = tw_min(omp_out, omp_in)) initializer(omp_priv = tw_highest<T>())")
TW_DECLARE(float) TW_DECLARE(double) TW_DECLARE(int64_t) TW_DECLARE(int32_t) TW_DECLARE(int16_t) TW_DECLARE(int8_t) TW_DECLARE(uint8_t)
"""


@dataclasses.dataclass(frozen=True)
class CppRenderer:
    """Text for one translation unit per graph."""

    grain: int = 16384
    language: str = "cpp"
    capabilities: Capabilities = Capabilities(row_scratch=64 * 1024)

    def render(self, kernel: LoopKernel) -> RenderedKernel:
        """The kernel as text."""
        return CppKernel(kernel, self.grain).render()

    def pack(self, kernels: Sequence[tuple[str, RenderedKernel]]) -> Sequence[Any]:
        """All kernels in one file; each record names its own function."""
        body = "\n".join(k.source.replace(KERNEL_NAME, name) for name, k in kernels)
        source = prefix() + DECLARED + body + "\n"
        return [
            KernelSource(name, "cpp", source, k.signature, {"entry": name, "flags": list(FLAGS), **dict(k.launch)})
            for name, k in kernels
        ]
