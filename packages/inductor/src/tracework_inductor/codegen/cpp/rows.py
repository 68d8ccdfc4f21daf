"""Sums along long rows: as many elements as there are lanes are computed at a time, and then added to these.

The terms are stored before they are added: g++ takes them from its registers, and knows vectors for whatever computes them. A reduction
of the vector loop itself would be added up at the end of each loop, one lane after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.body import Instruction
from ...schedule.plan import Pass
from ..printer import c_index
from .blocks import CHAIN, Sum, lanes, whole_groups

if TYPE_CHECKING:
    from .kernel import CppKernel

SIMD = "#pragma omp simd"


def row_in_lanes(k: CppKernel, p: Pass, reductions: list[Instruction], sums: dict[str, Sum]) -> None:
    """Sums alone, of long rows: as many elements as there are lanes are computed at a time, and then added to these."""
    smallest = min((k.kernel.layouts[i.args[0]].dtype.itemsize for i in p.body.loads()), default=4)
    width = lanes(smallest, k.kernel.reduction_axes[-1].size)
    totals = {name: Sum(f"{s.name}_lanes", f"tw_lanes<{s.type}>::type") for name, s in sums.items()}
    for s in totals.values():
        k.w.line(f"{s.type} {s.name} = {{}};")
    blocks = k.open_blocks(p, totals, CHAIN * width)
    *outer, (last, *bounds) = blocks.inside
    for a in outer:
        k.loop(*a)
    begin, count = bounds or ("0", c_index(last.size))
    whole, at = whole_groups(begin, count, width), f"{last.var}v"
    k.w.open(f"for (int64_t {at} = {begin}; {at} < {whole}; {at} += {width})")
    for s in sums.values():
        k.w.line(f"{s.type} {s.name}_terms[{width}] __attribute__((aligned(64)));")
    k.w.line(SIMD + k.bad_clause())
    k.loop(last, at, str(width))
    k.apart = True
    k.statements(p.body.instructions, {name: f"{s.name}_terms[{last.var}k]" for name, s in sums.items()})
    k.apart = False
    k.w.close()
    for name, s in sums.items():
        k.w.line(f"{blocks.sums[name].name} += tw_lanes<{s.type}>::of<{width}>({s.name}_terms);")
    k.w.close()
    if not isinstance(last.size, int) or last.size % width:
        rest = {name: f"{s.name}_rest" for name, s in sums.items()}
        for name, s in sums.items():
            k.w.line(f"{s.type} {rest[name]} = 0;")
        k.w.line(SIMD + k.reduction_clauses(reductions, rest) + k.bad_clause())
        k.loop(last, whole, str(int(count) % width) if count.isdigit() else f"{count} % {width}")
        k.statements(p.body.instructions, rest)
        k.w.close()
        for name in sums:
            k.w.line(f"{blocks.sums[name].name}[0] += {rest[name]};")
    for _ in outer:
        k.w.close()
    k.close_blocks(blocks)
    for name, s in sums.items():
        k.w.line(f"{s.name} = tw_lanes<{s.type}>::total({totals[name].name});")
