"""Graphs as a GPU's are, where there is none: traced for the CPU, then asked again of every operator for operands on a GPU.

Autograd of torch makes no nodes for fakes on a GPU in a process without a driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import tracework_aotautograd as aotautograd
import tracework_inductor as inductor
import tracework_primops as primops
from torch import fx, nn
from tracework_aotautograd.api import _clean
from tracework_aotautograd.layouts import lay_out
from tracework_aotautograd.partition import narrow_indices

GPU = torch.device("cuda", 0)


def traced(program: Callable[..., tuple[Any, ...]], inputs: Sequence[torch.Tensor]) -> aotautograd.JointProgram:
    """The graph of a program for inputs like these, of which only sizes, strides, dtypes and whether they require gradients are read; joint
    where one does."""
    graph, mode = fx.Graph(), primops.FakeMode()
    placeholders = [graph.placeholder(f"x{n}") for n in range(len(inputs))]
    for placeholder, x in zip(placeholders, inputs, strict=True):
        spec = primops.TensorSpec(x.dtype, torch.device("cpu"), tuple(x.shape), tuple(x.stride()))
        placeholder.meta["example_value"] = mode.make(spec)
    graph.output(graph.call_function(program, tuple(placeholders)))
    trace = aotautograd.trace_joint if any(x.requires_grad for x in inputs) else aotautograd.trace_inference
    joint = trace(fx.GraphModule({}, graph), list(inputs), inductor.ATTENTION_DEVICES)
    _clean(joint.graph)
    move(joint.graph, joint.fake_mode)
    return joint


def move(gm: fx.GraphModule, mode: primops.FakeMode) -> None:
    """To the GPU, with all values."""
    with torch.no_grad(), mode:
        for node in gm.graph.nodes:
            _move(node, mode)


def _move(node: fx.Node, mode: primops.FakeMode) -> None:
    if node.op == "placeholder":
        if isinstance(node.meta["val"], torch.Tensor):
            node.meta["val"] = mode.make(node.meta["val"].spec.replace(device=GPU))
    elif node.op == "call_function":
        node.kwargs = {name: GPU if isinstance(value, torch.device) else value for name, value in node.kwargs.items()}
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]


def of_module(module: nn.Module, x: torch.Tensor, training: bool) -> tuple[Callable[..., tuple[Any, ...]], list[torch.Tensor]]:
    """A module as a program, and its inputs, in which nothing is allocated."""
    module = module.to("meta").to(x.dtype).train(training)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def program(x: torch.Tensor, *given: torch.Tensor) -> tuple[Any, ...]:
        found = torch.func.functional_call(module, dict(zip(state, given, strict=True)), (x,))
        return found if isinstance(found, tuple) else (found,)

    leaves = [t.detach().requires_grad_(training and isinstance(t, nn.Parameter)) for t in state.values()]
    return program, [x.to("meta"), *leaves]


def graphs(joint: aotautograd.JointProgram) -> list[primops.PrimGraph]:
    """What is compiled of a graph, in prims: one graph for inference, or one for the forward and each backward."""
    lay_out(joint.graph)
    signature = joint.signature
    if signature.tangents:
        narrow_indices(joint.graph.graph)
        halves = aotautograd.partition(joint, aotautograd.AotOptions())
        parts = [(halves.forward, halves.forward_spec), *((b.graph, b.spec) for b in halves.backwards)]
    else:
        known = signature.static_inputs, signature.mutated_in_graph
        parts = [(joint.graph, aotautograd.GraphSpec("inference", *known, joint.symbols, joint.fake_mode))]
    return [primops.run_passes(primops.decompose(gm, spec=spec).replace(editable=True)) for gm, spec in parts]


def artifacts(joint: aotautograd.JointProgram) -> list[Any]:
    """What is compiled for a graph: one for inference, or one for the forward and each backward."""
    return [inductor.compile_graph(prims) for prims in graphs(joint)]
