"""The caller's outputs from the graph's: the same objects, views of inputs, views of graph outputs, numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..signature import OutputInfo, OutputKind, Signature, SizeSlot, ViewStep

Maker = Callable[[Sequence[Any], Sequence[Any], list[Any]], Any]


def replay(base: torch.Tensor, steps: tuple[ViewStep, ...], graph_outputs: Sequence[Any]) -> torch.Tensor:
    """The view ops on a real tensor."""

    def actual(arg: Any) -> Any:
        if isinstance(arg, SizeSlot):
            return graph_outputs[arg.slot]
        return type(arg)(map(actual, arg)) if isinstance(arg, (list, tuple)) else arg

    for step in steps:
        base = step.target(base, *actual(step.args), **dict(step.kwargs))
        if step.index is not None:
            base = base[step.index]
    return base


def _viewed(base: torch.Tensor, info: OutputInfo, graph_outputs: Sequence[Any]) -> torch.Tensor:
    if info.requires_grad or not base.requires_grad:
        return replay(base, info.steps, graph_outputs)
    with torch.no_grad():
        return replay(base, info.steps, graph_outputs)


# kind -> function(info, caller's inputs, graph outputs, outputs so far)
MAKERS: dict[OutputKind, Callable[[OutputInfo, Sequence[Any], Sequence[Any], list[Any]], Any]] = {
    OutputKind.FRESH: lambda info, inputs, graph, made: graph[info.slot],
    OutputKind.SIZE: lambda info, inputs, graph, made: graph[info.slot],
    OutputKind.INPUT: lambda info, inputs, graph, made: inputs[info.slot],
    OutputKind.OUTPUT: lambda info, inputs, graph, made: made[info.slot],
    OutputKind.CONSTANT: lambda info, inputs, graph, made: info.constant,
    OutputKind.INPUT_VIEW: lambda info, inputs, graph, made: _viewed(inputs[info.slot], info, graph),
    OutputKind.BASE_VIEW: lambda info, inputs, graph, made: _viewed(graph[info.slot], info, graph),
}


def is_plain(signature: Signature) -> bool:
    """Whether the caller's outputs are the graph's, one to one."""
    slots = [o.slot for o in signature.outputs if o.kind in (OutputKind.FRESH, OutputKind.SIZE)]
    return len(slots) == len(signature.outputs) == signature.number_of_graph_outputs and slots == list(range(len(slots)))


def make_outputs(signature: Signature, inputs: Sequence[Any], graph_outputs: Sequence[Any]) -> tuple[Any, ...]:
    """All of the caller's outputs."""
    made: list[Any] = []
    for info in signature.outputs:
        made.append(MAKERS[info.kind](info, inputs, graph_outputs, made))
    return tuple(made)


def needs_inputs(signature: Signature) -> bool:
    """Whether making the outputs reads the caller's inputs."""
    return any(o.kind in (OutputKind.INPUT, OutputKind.INPUT_VIEW) for o in signature.outputs)
