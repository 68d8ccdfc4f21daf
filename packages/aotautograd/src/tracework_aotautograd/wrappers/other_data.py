"""Gradients after `tensor.data = other` between a forward and its backward: autograd's formulas read an input as it is by then, and what
the forward had computed from it as it was.

Compiled backwards read inputs as they were: kernels are made for one dtype and layout, and may compute again what the forward did, as
the forward may compute early what formulas make of inputs alone. So the gradients are computed here, one operator after the other, where
an input has other memory than the forward was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..contracts import Backward, JointProgram
from ..partition.split import JointParts, needed_for

__all__ = ["OtherData"]


class OtherData:
    """A component's part of the joint graph. `watched`: slots of the inputs that formulas of its backward read."""

    def __init__(self, joint: JointProgram, parts: JointParts, backward: Backward) -> None:
        self._graph = joint.graph.graph
        self._inputs, self._gradients = parts.inputs, parts.gradients[backward.component]
        nodes = {node.name: node for node in self._graph.nodes}
        self._known = [nodes[node.name] for node in backward.graph.graph.nodes if node.op == "placeholder"]
        self._order: list[fx.Node] = []
        signature, read = joint.signature, needed_for(self._gradients, set())
        self.watched = tuple(
            slot
            for slot, (node, info) in enumerate(zip(parts.inputs, signature.inputs, strict=False))
            if info.kind.value == "tensor"
            and slot not in signature.mutated_in_graph
            and any(user in read and _is_formula(user) for user in node.users)
        )

    def gradients(self, watched: Sequence[torch.Tensor], given: Sequence[Any]) -> list[Any]:
        """The gradients: of the watched inputs and what the backward is called with. Raises what the operators do on the other data."""
        values = dict(zip(self._known, given, strict=True))
        now = {self._inputs[slot]: tensor.detach() for slot, tensor in zip(self.watched, watched, strict=True)}
        for node in self._order or self._plan(set(now)):
            read = values | now if _is_formula(node) else values
            args, kwargs = fx.map_arg((node.args, node.kwargs), read.__getitem__)
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return [values[g] if isinstance(g, fx.Node) else g for g in self._gradients]

    def _plan(self, now: set[fx.Node]) -> list[fx.Node]:
        """The nodes to run: of what was saved those values are computed anew that a formula gives and whose operands are there."""
        there, given = set(self._known), set(self._known)
        for node in self._graph.nodes:
            readable = there | now if _is_formula(node) else there
            if node.op == "call_function" and readable.issuperset(node.all_input_nodes):
                there.add(node)
                if _is_formula(node):
                    given.discard(node)
        needed = needed_for(self._gradients, given) - given
        self._order = [node for node in self._graph.nodes if node in needed and node.op == "call_function"]
        return self._order


def _is_formula(node: fx.Node) -> bool:
    return node.op == "call_function" and node.meta.get("phase") == "backward"
