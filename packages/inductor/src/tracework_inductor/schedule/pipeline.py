"""schedule(): a Program becomes a KernelPlan."""

import dataclasses

from ..ir.buffer import CoreNode, LoopNode
from ..options import InductorOptions
from ..target import Capabilities
from .batch import batched
from .choice import Choose, chosen
from .fuse import Fuser
from .graph import output_buffers
from .memory import plan_memory
from .mixed_orders import with_mixed_orders
from .operators import runs_between
from .order import launch_order
from .passes import KernelBuilder
from .plan import ExternKernel, Kernel, KernelPlan, MemoryPlan, Program, core_kernel
from .tables import in_tables


def schedule(program: Program, options: InductorOptions, capabilities: Capabilities, choose: Choose | None = None) -> KernelPlan:
    """The plan of a program. choose: which large products cores compute; the library does all others, and all where it is None."""

    def plan(nodes: Program) -> KernelPlan:
        return _plan(nodes, options, capabilities)

    found = chosen(program, choose, plan) if program.products and choose is not None else plan(program)
    return dataclasses.replace(found, memory=plan_memory(found.program, found.kernels, options.memory_reuse))


def _plan(program: Program, options: InductorOptions, capabilities: Capabilities) -> KernelPlan:
    """Fuse, order, build kernels, put small ones together; without a plan of memory, which no choice between plans needs."""
    fuser = Fuser(program, options, capabilities)
    fuser.run()
    fuser = with_mixed_orders(program, fuser)
    program, groups = fuser.program, fuser.groups
    gpu = any(b.layout.device.type == "cuda" for b in program.buffers.values())
    between = {g.number for g in groups if gpu and any(runs_between(program, m.node) for m in g.members)}
    groups = launch_order(groups, fuser.dependencies.predecessors, fuser.group_of, between)
    wanted = output_buffers(program) | {n.mutates for n in fuser.nodes if n.mutates is not None}
    readers = fuser.dependencies.readers
    kernels: list[Kernel] = []
    for group in groups:
        first = group.members[0].node
        if isinstance(first, CoreNode):
            kernels.append(core_kernel(first, program.buffers))
            continue
        if not isinstance(first, LoopNode):
            kernels.append(ExternKernel(first))
            continue

        def needed(name: str, mask: int = group.nodes_mask) -> bool:
            return name in wanted or any(not mask >> r & 1 for r in readers.get(name, ()))

        name = f"kernel{len(kernels)}"
        kernels.append(KernelBuilder(group, program.buffers, needed, capabilities).build(name))
    if capabilities.tables:
        kernels = in_tables(kernels, program.buffers)
    if capabilities.batches:
        kernels = batched(kernels, program.buffers)
    return KernelPlan(program, tuple(kernels), MemoryPlan((), 0), tuple(fuser.refusals))
