"""What computes a large product: the library, with what follows in kernels of its own, or a core, with what is fused. Chosen after fusion."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..autotune.record import Candidate
from ..ir.buffer import LoopNode
from .matrix_product import matrix_product
from .plan import ExternKernel, Kernel, KernelPlan, LoopKernel, Program, Refusal


@dataclasses.dataclass(frozen=True)
class Choice:
    """Two ways to the same buffers."""

    name: str
    """Of the library's call."""
    core: LoopKernel
    library: tuple[Kernel, ...]
    """The call, and the kernels of what the core's kernel computes besides; some of these may compute more."""
    copies: tuple[Kernel, ...] = ()
    """Of what the core alone reads, which runs before it."""
    rest: tuple[Kernel, ...] = ()
    """Beside the core's kernel, of what else those of `library` compute."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """configs: library call that a core replaces -> how it does that, as Candidate.config has it, empty for the renderer's first guess;
    candidates: library call -> what was looked at, the way that is taken first."""

    configs: Mapping[str, Mapping[str, Any]]
    candidates: Mapping[str, tuple[Candidate, ...]] = dataclasses.field(default_factory=dict)


Choose = Callable[[Sequence[Choice]], Answer]
"""Given all choices, in the order of the program."""


def every(choices: Sequence[Choice]) -> Answer:
    """All cores, by their first guesses."""
    return Answer({choice.name: {} for choice in choices})


def with_cores(program: Program, names: Collection[str]) -> Program:
    """The program with loops, whose products a core writes, in place of these library calls."""
    gone = frozenset[str]().union(*(program.pieces.get(name, ()) for name in names))
    kept = (node for node in program.nodes if node.name not in gone)
    nodes = [new for node in kept for new in (program.products[node.name] if node.name in names else (node,))]
    written = {name: program.buffers[name] for call in names for name in program.products[call][-1].writes}
    buffers = {
        **program.buffers,
        **{name: dataclasses.replace(buffer, kind="computed", base=None) for name, buffer in written.items()},
    }
    return dataclasses.replace(program, nodes=tuple(nodes), buffers=buffers)


def taken_cores(program: Program, answer: Answer, with_these: Callable[[frozenset[str]], KernelPlan]) -> KernelPlan:
    """The plan with the cores of an answer, as far as there are ones that compute what was fused. with_these: plans the program with these."""
    refused: dict[str, Refusal] = {}
    while True:
        found = with_these(frozenset(answer.configs).difference(refused))
        misfits = {name: r for name, kernel in cores(program, found.kernels) if isinstance(r := matrix_product(kernel), str)}
        if not misfits:
            kernels = {kernel.name: name for name, kernel in cores(program, found.kernels)}
            configured = tuple(
                dataclasses.replace(k, config=answer.configs[kernels[k.name]]) if isinstance(k, LoopKernel) and k.core else k
                for k in found.kernels
            )
            looked_at = {kernels.get(k.name, k.name): k.name for k in found.kernels}
            candidates = {looked_at[name]: c for name, c in answer.candidates.items() if name in looked_at}
            refusals = (*found.refusals, *refused.values())
            return dataclasses.replace(found, kernels=configured, refusals=refusals, choices=candidates)
        for name, reason in misfits.items():
            refused[name] = Refusal(name, _product(program, name).core, "core", reason)


def chosen(program: Program, choose: Choose, plan: Callable[[Program], KernelPlan]) -> KernelPlan:
    """The plan of a program with what is chosen, after both ways were planned for all products."""
    planned: dict[frozenset[str], KernelPlan] = {}

    def with_these(names: frozenset[str]) -> KernelPlan:
        if names not in planned:
            planned[names] = plan(with_cores(program, names))
        return planned[names]

    offered = taken_cores(program, Answer(dict.fromkeys(program.products, {})), with_these)
    found = taken_cores(program, choose(_choices(program, offered, with_these(frozenset()))), with_these)
    refused = tuple(r for r in offered.refusals if r.first in program.products)
    return dataclasses.replace(found, refusals=(*found.refusals, *refused))


def _choices(program: Program, offered: KernelPlan, library: KernelPlan) -> tuple[Choice, ...]:
    found = []
    for name, core in cores(program, offered.kernels):
        members = {name, *program.pieces.get(name, ()), *core.nodes}
        copies = {loops.name for loops in program.products[name]}.difference(core.nodes)
        before = tuple(k for k in offered.kernels if copies & _nodes(k))
        replaced = tuple(k for k in library.kernels if members & _nodes(k))
        others = frozenset[str]().union(*map(_nodes, replaced)) - members
        rest = tuple(k for k in offered.kernels if others & _nodes(k) and not getattr(k, "core", ""))
        found.append(Choice(name, core, replaced, before, rest))
    return tuple(sorted(found, key=lambda choice: list(program.products).index(choice.name)))


def cores(program: Program, kernels: Iterable[Kernel]) -> list[tuple[str, LoopKernel]]:
    """(library call, kernel that a core writes in its place)."""
    product = {_product(program, name).name: name for name in program.products}
    found = []
    for kernel in kernels:
        if isinstance(kernel, LoopKernel) and kernel.core:
            found += [(product[node], kernel) for node in kernel.nodes if node in product]
    return found


def _product(program: Program, name: str) -> LoopNode:
    """Of the loops in the place of a library call, those that a core writes."""
    return next(loops for loops in program.products[name] if loops.core)


def _nodes(kernel: Kernel) -> set[str]:
    if isinstance(kernel, LoopKernel):
        return set(kernel.nodes)
    if isinstance(kernel, ExternKernel):
        return {kernel.name}
    return {node for part in getattr(kernel, "parts", ()) for node in part.nodes}


__all__ = ["Answer", "Choice", "Choose", "chosen", "cores", "every", "taken_cores", "with_cores"]
