"""What computes a large product: the library, with what follows in kernels of its own, or a core, with what is fused. Chosen after fusion."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

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


@dataclasses.dataclass(frozen=True)
class Answer:
    """configs: library call that a core replaces -> how it does that, None for its first guess; report: lines that say why."""

    configs: Mapping[str, Mapping[str, Any] | None]
    report: tuple[str, ...] = ()


Choose = Callable[[Sequence[Choice]], Answer]
"""Given all choices, in the order of the program."""


def with_cores(program: Program, names: Collection[str]) -> Program:
    """The program with loops, whose products a core writes, in place of these library calls."""
    nodes = [new for node in program.nodes for new in (program.products[node.name] if node.name in names else (node,))]
    written = {name: program.buffers[name] for call in names for name in program.products[call][-1].writes}
    buffers = {**program.buffers, **{name: dataclasses.replace(buffer, kind="computed") for name, buffer in written.items()}}
    return dataclasses.replace(program, nodes=tuple(nodes), buffers=buffers)


def taken_cores(program: Program, answer: Answer, plan: Callable[[Program], KernelPlan]) -> KernelPlan:
    """The plan with the cores of an answer, as far as there are ones that compute what was fused."""
    refused: dict[str, Refusal] = {}
    while True:
        found = plan(with_cores(program, {name for name in answer.configs if name not in refused}))
        misfits = {name: r for name, kernel in cores(program, found.kernels) if isinstance(r := matrix_product(kernel), str)}
        if not misfits:
            configs = {kernel.name: answer.configs[name] for name, kernel in cores(program, found.kernels)}
            kernels = tuple(
                dataclasses.replace(k, config=configs[k.name]) if isinstance(k, LoopKernel) and k.core else k
                for k in found.kernels
            )
            refusals = (*found.refusals, *refused.values())
            return dataclasses.replace(found, kernels=kernels, refusals=refusals, choices=answer.report)
        for name, reason in misfits.items():
            refused[name] = Refusal(name, program.products[name][0].core, "core", reason)


def choices(program: Program, plan: Callable[[Program], KernelPlan]) -> tuple[Choice, ...]:
    """All that there is to choose, in the order of the program."""
    offered = taken_cores(program, Answer(dict.fromkeys(program.products)), plan)
    library = plan(program).kernels
    found = []
    for name, core in cores(program, offered.kernels):
        members = {name, *core.nodes}
        found.append(Choice(name, core, tuple(k for k in library if members & _nodes(k))))
    return tuple(sorted(found, key=lambda choice: list(program.products).index(choice.name)))


def cores(program: Program, kernels: Iterable[Kernel]) -> list[tuple[str, LoopKernel]]:
    """(library call, kernel that a core writes in its place)."""
    product = {loops[0].name: name for name, loops in program.products.items()}
    found = []
    for kernel in kernels:
        if isinstance(kernel, LoopKernel) and kernel.core:
            found += [(product[node], kernel) for node in kernel.nodes if node in product]
    return found


def _nodes(kernel: Kernel) -> set[str]:
    if isinstance(kernel, LoopKernel):
        return set(kernel.nodes)
    if isinstance(kernel, ExternKernel):
        return {kernel.name}
    return {node for part in getattr(kernel, "parts", ()) for node in part.nodes}


__all__ = ["Answer", "Choice", "Choose", "choices", "cores", "taken_cores", "with_cores"]
