"""Gradients of gradients: a component's gradients as differentiable functions of inputs, results and tangents.

They are a captured graph of their own (trace/replay.py), compiled as one: its own backward is the next order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from . import _torch
from .contracts import JointProgram, Report
from .partition import JointParts, has_effect, needed_for, value_inputs
from .signature import Component, Reads
from .trace.replay import GradientsOf, can_be_stood_for

Compile = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]
OVERLAPPING = "gradients that are differentiated again, of inputs that share memory which is written to"
BATCHED = "several gradients are computed at once (is_grads_batched=True, vmap over a backward)"


def reads_of(joint: JointProgram, parts: JointParts, component: Component) -> Reads:
    """What a component's gradients are computed from, read off the joint graph."""
    gradients = parts.gradients[component]
    # random numbers are drawn again, those of other components, too
    others = [n for n in joint.graph.graph.nodes if has_effect(n) and n.meta.get("write_back") is None]
    taken = [parts.forward_outputs[slot] for slot in component.results]
    own = [parts.forward_outputs[joint.signature.tangents[place].slot] for place in component.tangents]
    read, values = needed_for([*gradients, *others], set()), needed_for(gradients, set(), value_inputs)
    kept = {i for i, n in enumerate(parts.inputs) if n in read or not can_be_stood_for(n.meta["val"])}
    inputs = {i for i, n in enumerate(parts.inputs) if n in values}
    for place, memory in enumerate(joint.signature.shared, len(joint.signature.inputs)):
        slots = {slot for slot, _ in memory.parts}  # a write through one part may be read through another
        inputs |= slots if place in inputs else set()
        kept |= slots if place in inputs or not kept.isdisjoint(slots) else set()
    return Reads(
        frozenset(inputs),
        joint.replay.inside | kept,
        tuple(place for place, n in enumerate(taken) if n in read or component.results[place] in joint.replay.rewritten),
        tuple(place for place, n in enumerate(own) if n in values),
    )


class HigherOrder:
    """Compiled at the first call under `create_graph=True` for each combination of arguments that are there and require grad.

    Guards exist by then, so with symbolic sizes what compiling finds out is checked here, and otherwise the captured graph runs as it is.
    """

    def __init__(self, joint: JointProgram, parts: JointParts, component: Component, compile_: Compile, report: Report) -> None:
        results = [*component.results, *(joint.signature.tangents[place].slot for place in component.tangents)]
        tangents = [parts.tangents[place] for place in component.tangents]
        count = len(joint.signature.inputs)
        self._examples = [n.meta["val"] for n in (*parts.inputs[:count], *(parts.forward_outputs[s] for s in results), *tangents)]
        self._names = [n.name for n in parts.inputs[:count]] + [f"result_{slot}" for slot in results] + [n.name for n in tangents]
        self._gradients = GradientsOf(joint.replay, joint.signature, component, self._examples)
        self._symbols = joint.symbols
        self._overlaps = bool(joint.signature.shared)
        self._compile = compile_
        self._report = report
        self._compiled: dict[tuple[bool | None, ...], Callable[..., Any]] = {}
        self._guarded: int | None = None  # conditions that were there when guards were made

    def __call__(self, inputs: Sequence[Any], results: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        """The gradients. A result is None where nobody has it any more."""
        given = [*inputs, *results, *tangents]
        if _torch.any_batched(tangents):
            self._report(BATCHED, "")
            return self._gradients(*given)
        if self._overlaps:
            self._report(OVERLAPPING, "")
            return self._gradients(*given)
        key = tuple([None if x is None else getattr(x, "requires_grad", False) for x in given])
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self._compile_for(given)
        return found(given)

    def _compile_for(self, given: list[Any]) -> Callable[[list[Any]], Any]:
        graph = fx.Graph()
        made: list[fx.Node | None] = [None] * len(given)
        places = [i for i, x in enumerate(given) if x is not None]
        for i in places:
            made[i] = node = graph.placeholder(self._names[i])
            node.meta["example_value"] = self._examples[i]
        graph.output(graph.call_function(self._gradients, tuple(made)))
        gm = _torch.graph_module(graph)
        gm.meta["symbols"] = symbols = self._symbols
        if self._guarded is None:
            self._guarded = 0 if symbols is None else len(symbols.conditions)
        call = self._compile(gm, [given[i] for i in places])
        conditions = () if symbols is None else tuple(c.condition for c in symbols.conditions[self._guarded :])
        sizes = {x.node.expr: i for i, x in enumerate(self._examples) if isinstance(x, torch.SymInt)}

        def run(given: list[Any]) -> Any:
            values = {expr: given[i] for expr, i in sizes.items()} if conditions else {}
            if all(condition.evaluate(values) for condition in conditions):
                return call(*[given[i] for i in places])
            self._report("a gradient of a gradient was compiled for other sizes", "")
            return self._gradients(*given)

        return run
