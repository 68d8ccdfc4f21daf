"""Joint and backward: what autograd does to a captured function, as one graph, and how it is cut into a forward and a backward."""

from typing import Any

import torch
from tracework_aotautograd import AotOptions, partition, trace_joint


def network(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    hidden = torch.nn.functional.gelu(x @ up)
    return torch.nn.functional.mse_loss(hidden @ down, x)


x = torch.randn(32, 16)
up, down = torch.randn(16, 64, requires_grad=True), torch.randn(64, 16, requires_grad=True)

joint = trace_joint(torch.fx.symbolic_trace(network), [x, up, down])
print(joint.graph.print_readable(print_output=False))
phases = [node.meta.get("phase") for node in joint.graph.graph.nodes if node.op == "call_function"]
print({phase: phases.count(phase) for phase in dict.fromkeys(phases)})


def bytes_kept(program: Any) -> int:
    """Of the tensors that the forward keeps for the backward."""
    output = next(node for node in program.forward.graph.nodes if node.op == "output")
    kept = output.args[0][-program.saved[1] :] if program.saved[1] else ()
    return sum(node.meta["val"].numel() * node.meta["val"].element_size() for node in kept)


# What is kept is a choice. A smaller budget computes more of it again in the backward.
for options in (AotOptions(partitioner="default"), AotOptions(), AotOptions(memory_budget=0.5), AotOptions(memory_budget=0.0)):
    program = partition(joint, options)
    (backward,) = program.backwards
    calls = sum(node.op == "call_function" for node in backward.graph.graph.nodes)
    print(
        f"{options.partitioner}, budget {options.memory_budget}: {bytes_kept(program)} bytes kept, {calls} calls in the backward"
    )

program = partition(joint, AotOptions())
print(program.text())
