"""What computes a large product: the library, with what follows in kernels of its own, or a core, with what is fused. Chosen after fusion."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

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


Choose = Callable[[Sequence[Choice]], Collection[str]]
"""Given all choices: the names of those where the core is taken."""


def with_cores(program: Program, names: Collection[str]) -> Program:
    """The program with loops, whose products a core writes, in place of these library calls."""
    nodes = [new for node in program.nodes for new in (program.products[node.name] if node.name in names else (node,))]
    written = {name: program.buffers[name] for call in names for name in program.products[call][-1].writes}
    buffers = {**program.buffers, **{name: dataclasses.replace(buffer, kind="computed") for name, buffer in written.items()}}
    return dataclasses.replace(program, nodes=tuple(nodes), buffers=buffers)


def taken_cores(program: Program, wanted: Collection[str], plan: Callable[[Program], KernelPlan]) -> KernelPlan:
    """The plan with cores for these library calls, as far as there is one that computes what was fused."""
    refused: dict[str, Refusal] = {}
    while True:
        found = plan(with_cores(program, {name for name in wanted if name not in refused}))
        misfits = {name: r for name, kernel in cores(program, found.kernels) if isinstance(r := matrix_product(kernel), str)}
        if not misfits:
            return dataclasses.replace(found, refusals=(*found.refusals, *refused.values()))
        for name, reason in misfits.items():
            refused[name] = Refusal(name, program.products[name][0].core, "core", reason)


def choices(program: Program, plan: Callable[[Program], KernelPlan]) -> tuple[Choice, ...]:
    """All that there is to choose, in the order of the program."""
    offered = taken_cores(program, program.products, plan)
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


__all__ = ["Choice", "Choose", "choices", "cores", "taken_cores", "with_cores"]
