"""schedule(): a Program becomes a KernelPlan."""

from ..ir.buffer import CoreNode, LoopNode
from ..options import InductorOptions
from ..target import Capabilities
from .batch import batched
from .fuse import Fuser
from .graph import output_buffers
from .memory import plan_memory
from .order import launch_order
from .passes import KernelBuilder
from .plan import ExternKernel, Kernel, KernelPlan, Program, core_kernel


def schedule(program: Program, options: InductorOptions, capabilities: Capabilities) -> KernelPlan:
    """Fuse, order, build kernels, put small ones together, plan memory."""
    fuser = Fuser(program, options, capabilities)
    groups = launch_order(fuser.run(), fuser.dependencies.predecessors, fuser.group_of)
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
    if capabilities.batches:
        kernels = batched(kernels, program.buffers)
    memory = plan_memory(program, kernels, options.memory_reuse)
    return KernelPlan(program, tuple(kernels), memory, tuple(fuser.refusals))
