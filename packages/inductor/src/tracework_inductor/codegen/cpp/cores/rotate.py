"""Blocks of memory that are rotated where they lie, read and written once.

The node's facts: `blocks` of `length` elements each; element n of a block becomes what element n + `distance` was, counted around. The first
`distance` elements lie on the stack meanwhile.
"""

from ....schedule.plan import CoreKernel
from ...renderer import KERNEL_NAME, RenderedKernel

__all__ = ["render"]

_SOURCE = """
extern "C" void KERNEL_NAME(char*, char* p) {
  PARALLEL
  for (int64_t n = 0; n < BLOCKS; ++n) {
    char first[DISTANCE], *b = p + n * LENGTH;
    __builtin_memcpy(first, b, DISTANCE);
    __builtin_memmove(b, b + DISTANCE, LENGTH - DISTANCE);
    __builtin_memcpy(b + LENGTH - DISTANCE, first, DISTANCE);
  }
}
"""


def render(kernel: CoreKernel, grain: int) -> RenderedKernel:
    """The text and its signature."""
    facts, size = dict(kernel.node.facts), kernel.node.results[0]
    itemsize = kernel.layouts[size.buffer].dtype.itemsize
    shared = facts["blocks"] > 1 and facts["blocks"] * facts["length"] >= grain
    text = _SOURCE.replace("KERNEL_NAME", KERNEL_NAME).replace("PARALLEL", "#pragma omp parallel for" if shared else "")
    text = text.replace("BLOCKS", str(facts["blocks"]))
    for name in ("distance", "length"):
        text = text.replace(name.upper(), str(facts[name] * itemsize))
    return RenderedKernel(text, ("*", "*"))
