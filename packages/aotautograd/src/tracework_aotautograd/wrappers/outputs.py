"""The caller's outputs from the graph's: the same objects, views of inputs, views of graph outputs, numbers.

`output_maker` writes one straight function for a signature, so that a call costs no loop over kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from .. import _torch
from ..signature import OutputKind, Signature, SizeSlot, TakenView, ViewStep

Maker = Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]
Views = dict[str | None, Sequence[torch.Tensor]]


def replay(base: torch.Tensor, steps: tuple[ViewStep, ...], graph_outputs: Sequence[Any], made: Views) -> torch.Tensor:
    """The view ops on a real tensor. made: what calls that give several views gave before, which have one autograd node."""
    for step in steps:
        if step.index is not None and step.call in made:
            base = made[step.call][step.index]
        elif step.tracked == torch.is_grad_enabled() or not base.requires_grad:
            base = view(base, step, graph_outputs, made)
        else:  # the graph itself may have switched them
            with torch.set_grad_enabled(step.tracked):
                base = view(base, step, graph_outputs, made)
    return base


def view(base: torch.Tensor, step: ViewStep, graph_outputs: Sequence[Any], made: Views) -> torch.Tensor:
    """One view op, where gradients are on or off as the program made it."""
    if step.data is not None:
        found = base.data
        _torch.set_versions([found], [step.data])
        return found
    found = step.target(base, *actual(step.args, graph_outputs), **dict(step.kwargs))
    if step.call is None:
        return found
    made[step.call] = found
    return found[step.index]


def actual(arg: Any, graph_outputs: Sequence[Any]) -> Any:
    """The argument with the sizes that the graph gave. No closure: one that calls itself would hold the results until a collection."""
    if isinstance(arg, SizeSlot):
        return graph_outputs[arg.slot]
    return type(arg)(actual(part, graph_outputs) for part in arg) if isinstance(arg, (list, tuple)) else arg


def make_views(views: Sequence[TakenView], inputs: Sequence[Any], graph_outputs: list[Any]) -> None:
    """Puts each view in its place among the graph's outputs."""
    made: Views = {}
    for taken in views:
        info = taken.info
        base = (inputs if info.kind is OutputKind.INPUT_VIEW else graph_outputs)[info.slot]
        graph_outputs[taken.slot] = replay(base, info.steps, graph_outputs, made)


# kind -> Python text of the output, from its position and slot; `info_<position>` is the OutputInfo
TEXTS: dict[OutputKind, str] = {
    OutputKind.FRESH: "graph[{slot}]",
    OutputKind.ALIAS: "alias(graph[{slot}])",
    OutputKind.SIZE: "graph[{slot}]",
    OutputKind.INPUT: "inputs[{slot}]",
    OutputKind.OUTPUT: "out_{slot}",
    OutputKind.CONSTANT: "info_{position}.constant",
    OutputKind.INPUT_VIEW: "replay(inputs[{slot}], info_{position}.steps, graph, made)",
    OutputKind.BASE_VIEW: "replay(graph[{slot}], info_{position}.steps, graph, made)",
    OutputKind.OUTPUT_VIEW: "replay(out_{slot}, info_{position}.steps, graph, made)",
}


def is_plain(signature: Signature) -> bool:
    """Whether the caller's outputs are the graph's, one to one."""
    slots = [o.slot for o in signature.outputs if o.kind in (OutputKind.FRESH, OutputKind.SIZE)]
    return len(slots) == len(signature.outputs) == signature.number_of_graph_outputs and slots == list(range(len(slots)))


def aliased(signature: Signature) -> frozenset[int]:
    """Graph outputs that the caller gets through views."""
    return frozenset(info.slot for info in signature.outputs if info.kind is OutputKind.ALIAS)


def output_maker(signature: Signature, as_they_are: Collection[int] = ()) -> Maker:
    """(the caller's inputs, graph outputs) -> all of the caller's outputs. as_they_are: graph outputs that are shown through no view,
    as they may be one already."""
    if is_plain(signature):
        return lambda inputs, graph: graph if graph.__class__ is tuple else tuple(graph)
    scope: dict[str, Any] = {"replay": replay, "alias": _torch.alias}
    lines = []
    for position in sorted(range(len(signature.outputs)), key=lambda place: _depth(signature, place)):
        info = signature.outputs[position]
        scope[f"info_{position}"] = info
        kind = OutputKind.FRESH if info.kind is OutputKind.ALIAS and info.slot in as_they_are else info.kind
        lines.append(f"    out_{position} = {TEXTS[kind].format(slot=info.slot, position=position)}")
    results = "".join(f"out_{position}, " for position in range(len(signature.outputs)))
    return compile_function("make", "inputs, graph", ["    made = {}", *lines, f"    return ({results})"], scope)


def _depth(signature: Signature, position: int) -> int:
    """How many other outputs one is made from, each from the next."""
    info = signature.outputs[position]
    return 1 + _depth(signature, info.slot) if info.kind in (OutputKind.OUTPUT, OutputKind.OUTPUT_VIEW) else 0


def compile_function(name: str, parameters: str, lines: Sequence[str], scope: dict[str, Any]) -> Callable[..., Any]:
    """A function made from lines of text over the names in `scope`."""
    text = "\n".join([f"def {name}({parameters}):", *lines])
    exec(compile(text, f"<tracework_aotautograd {name}>", "exec"), scope)
    return scope[name]
