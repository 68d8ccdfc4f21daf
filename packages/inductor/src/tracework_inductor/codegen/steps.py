"""What a report says of each kernel of a plan, small enough to be stored with the artifact."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tracework_primops import place_of
from tracework_runtime.host.lines import Call, Launch, Line

from ..ir.index import Expr
from ..schedule.graph import alias_root
from ..schedule.operators import operators_of
from ..schedule.plan import CoreKernel, ExternKernel, Kernel, KernelBatch, KernelPlan, LoopKernel
from .library_work import operator_name
from .traffic import traffic

__all__ = ["step_notes"]

_PLUMBING = frozenset({"load", "store", "constant", "local", "define"})
MOST_REFUSALS = 200
"""Of those with a reason of their own."""


def step_notes(
    plan: KernelPlan,
    functions: Mapping[str, str],
    calls: Sequence[str],
    lines: Sequence[Line],
    spans: Sequence[tuple[int, int]],
) -> dict[str, Any]:
    """Notes of an artifact:

    steps: for each kernel, in order: name (that of a function of the artifact, or of an operator), kind ("loops", "core", "batch" or
      "library"), ops (what it computes, as words), lines (which of the host program's lines launch or call it), origins (positions in
      `origins`), bytes, flops, reads, writes (names of buffers), key (under which `places` has it) and, of the library's, reason.
    origins: each a list of numbers of calls of the graph that stand at one place, or that place where no call has it.
    buffers: of those that steps read and write: dtype, sizes, kind, and the bytes where these are known.
    outputs: the names of buffers that the graph gives, or writes to. refused: (first, second, rule, reason, how often).
    role: of the graph. peak_bytes: of what it makes.

    calls: the places of the graph's calls. spans: of each kernel, the first of the lines that are its, and the one behind the last.
    """
    numbers: dict[str, list[int]] = {}
    for number, place in enumerate(calls):
        numbers.setdefault(place, []).append(number)
    origins: dict[str, int] = {}
    steps = []
    for kernel, (first, end) in zip(plan.kernels, spans, strict=True):
        own = [n for n in range(first, end) if isinstance(lines[n], (Launch, Call))]
        found = list(dict.fromkeys(map(place_of, kernel.node.origins if isinstance(kernel, ExternKernel) else kernel.origins)))
        steps.append(
            {
                **_named(plan, kernel, functions),
                "lines": own,
                "origins": [origins.setdefault(place, len(origins)) for place in found if place],
                **traffic(kernel, plan.program.buffers),
                "reads": sorted({alias_root(plan.program.buffers, b) for b in kernel.reads}),
                "writes": sorted({alias_root(plan.program.buffers, b) for b in kernel.writes}),
            }
        )
    outputs = {o.buffer for o in plan.program.outputs if o.buffer is not None} | set(plan.program.mutated)
    refused = Counter((r.rule, r.reason) for r in plan.refusals)
    firsts = {(r.rule, r.reason): (r.first, r.second) for r in reversed(plan.refusals)}
    named = _names_of_nodes(plan, functions)
    return {
        "steps": steps,
        "origins": [numbers.get(place) or place for place in origins],
        "buffers": _buffers(plan, {name for step in steps for name in (*step["reads"], *step["writes"])}),
        "outputs": sorted({alias_root(plan.program.buffers, b) for b in outputs}),
        "refused": [[*(named.get(name, name) for name in firsts[why]), *why, n] for why, n in refused.most_common(MOST_REFUSALS)],
        "role": plan.program.role,
        "peak_bytes": plan.memory.peak_bytes,
    }


def _named(plan: KernelPlan, kernel: Kernel, functions: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(kernel, ExternKernel):
        name = operator_name(kernel.node)
        key = operators_of(plan.program, kernel.node)[0]
        return {"name": name, "kind": "library", "ops": name, "key": key, "reason": kernel.node.reason}
    function = functions[kernel.name]
    kind = "batch" if isinstance(kernel, KernelBatch) else "core" if isinstance(kernel, CoreKernel) else "loops"
    ops = kernel.node.core if isinstance(kernel, CoreKernel) else _operators(kernel)
    return {"name": function, "kind": kind, "ops": ops, "key": function}


def _names_of_nodes(plan: KernelPlan, functions: Mapping[str, str]) -> dict[str, str]:
    """Node of the lowered graph -> what the kernel that has it is called."""
    found: dict[str, str] = {}
    for kernel in plan.kernels:
        name = operator_name(kernel.node) if isinstance(kernel, ExternKernel) else functions[kernel.name]
        parts = kernel.parts if isinstance(kernel, KernelBatch) else (kernel,)
        found |= dict.fromkeys(
            [kernel.name, *(node for part in parts for node in (part.name, *getattr(part, "nodes", ())))], name
        )
    return found


def _operators(kernel: LoopKernel | KernelBatch) -> str:
    """What the bodies compute, each operation once; a reduction by its kind."""
    found = [i.args[1] if i.op in ("reduce", "scan") else i.op for one in kernel.passes for i in one.body.instructions]
    return " ".join(dict.fromkeys(str(op) for op in found if op not in _PLUMBING))


def _buffers(plan: KernelPlan, names: set[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name in sorted(names & plan.program.buffers.keys()):
        buffer = plan.program.buffers[name]
        layout, elements = buffer.layout, buffer.layout.elements()
        known = elements * layout.dtype.itemsize if isinstance(elements, int) else None
        sizes = [str(n) if isinstance(n, Expr) else n for n in layout.sizes]
        found[name] = [str(layout.dtype).removeprefix("torch."), sizes, buffer.kind, known]
    return found
