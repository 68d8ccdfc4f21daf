"""Running sums along a row, in groups of steps.

Each group adds up its terms from zero, and what came before is added to the sums of the group at once: the chain of additions that wait
for each other ends with the group, and all but that chain is done by vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...ir.body import Axis, Instruction, Ref
from ...ir.scalar_ops import compute_dtype
from ...schedule.plan import Pass
from ..printer import c_index
from .blocks import whole_groups
from .text_rules import CPP_TYPES, REDUCTIONS, SIMD

if TYPE_CHECKING:
    from .kernel import CppKernel

GROUP = 16
"""Steps whose terms are computed together."""
EFFECTS = frozenset({"store", "scratch_store"})
"""What waits until the sums are known."""


def carried(scan: Instruction) -> torch.dtype:
    """The dtype of a running value: floats in double, as in eager's kernels."""
    assert scan.dtype is not None
    return torch.float64 if scan.dtype == torch.float32 else compute_dtype(scan.dtype)


def in_groups(p: Pass) -> bool:
    """Whether a pass has scans, all of which may be taken in groups.

    A group's own sum must not overflow where the sum with what came before would not: sums of float32, in double, and of integers. A group's
    own product may be infinite where that with what came before is 0. What a scan runs over must not depend on another scan.
    """
    scans = [i for i in p.body.instructions if i.op == "scan"]
    wide = all(i.dtype == torch.float32 and i.args[1] == "sum" or not carried(i).is_floating_point for i in scans)
    return bool(scans) and wide and not _nested(p)


def _nested(p: Pass) -> bool:
    behind: set[int] = set()
    for n, i in enumerate(p.body.instructions):
        if any(isinstance(a, Ref) and a.position in behind for a in i.args):
            if i.op in ("scan", "indirect"):
                return True
            behind.add(n)
        elif i.op == "scan":
            behind.add(n)
    return False


def scan_in_groups(k: CppKernel, p: Pass, axis: Axis) -> None:
    """The loop of a pass whose scans may be taken in groups."""
    count = c_index(axis.size)
    whole, at = whole_groups("0", count, GROUP), f"{axis.var}v"
    k.w.open(f"for (int64_t {at} = 0; {at} < {whole}; {at} += {GROUP})")
    _group(k, p, axis, at, str(GROUP))
    k.w.close()
    if not isinstance(axis.size, int) or axis.size % GROUP:
        k.w.open(f"if ({count} % {GROUP} != 0)")
        _group(k, p, axis, whole, f"{count} % {GROUP}")
        k.w.close()


def _group(k: CppKernel, p: Pass, axis: Axis, begin: str, count: str) -> None:
    """At most GROUP steps: their terms, the sums of these one after the other, and what follows from the sums with the carry."""
    scans = [i for i in p.body.instructions if i.op == "scan"]
    for i in scans:
        k.w.line(f"{CPP_TYPES[carried(i)]} t_{i.args[0]}[{GROUP}] __attribute__((aligned(64)));")
    k.lane = f"{axis.var}k"
    for apart in (True, False):
        k.w.line(SIMD + k.bad_clause())
        k.loop(axis, begin, count)
        k.apart = apart
        k.statements(p.body.instructions, {}, without=EFFECTS if apart else frozenset())
        k.w.close()
        for i in scans:
            name, kind = i.args[:2]
            text, combined = CPP_TYPES[carried(i)], REDUCTIONS[kind][1]
            run, carry, term = f"s_{name}", f"c_{name}", f"t_{name}[j]"
            if apart:
                k.w.line(f"{text} {run} = {REDUCTIONS[kind][0](text)};")
                step = combined.format(acc=run, value=term)
                k.w.line(f"for (int64_t j = 0; j < {count}; ++j) {term} = {run} = {step};")
            else:
                k.w.line(f"{carry} = {combined.format(acc=carry, value=run)};")
    k.apart, k.lane = False, ""
