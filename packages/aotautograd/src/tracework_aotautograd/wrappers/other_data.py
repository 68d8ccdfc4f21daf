"""Gradients after `tensor.data = other` between a forward and its backward: autograd's formulas read an input as it is by then, and what
the forward had computed from it as it was; but those inside of a checkpoint read what that computes from the input as it is.

Compiled backwards read inputs as they were: kernels are made for one dtype and layout, and may compute again what the forward did, as
the forward may compute early what formulas make of inputs alone. So the gradients are computed here, one operator after the other, where
an input has other memory than the forward was given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ..contracts import Backward, JointProgram, Report
from ..nodes import function_of
from ..partition import shown_input
from ..partition.split import JointParts, needed_for

__all__ = ["OtherData"]

Step = tuple[fx.Node, bool]
"""A node, and whether its checkpoint computes it again."""


class OtherData:
    """A component's part of the joint graph. `watched`: slots of the inputs that formulas of its backward read, or checkpoints that it
    computes again."""

    def __init__(self, joint: JointProgram, parts: JointParts, backward: Backward, report: Report) -> None:
        self._report = report
        self._graph = joint.graph.graph
        self._inputs, self._gradients = parts.inputs, parts.gradients[backward.component]
        nodes = {node.name: node for node in self._graph.nodes}
        self._known = [nodes[node.name] for node in backward.graph.graph.nodes if node.op == "placeholder"]
        self._order: list[Step] = []
        signature = joint.signature
        slots = {
            node: slot
            for slot, (node, info) in enumerate(zip(parts.inputs, signature.inputs, strict=False))
            if info.kind.value == "tensor" and slot not in signature.changed_unseen
        }
        needed = self._needed(slots, ())
        read = {node for step in needed for node in step[0].all_input_nodes if node in slots and _reads_now(step)}
        self.watched = tuple(slot for node, slot in slots.items() if node in read)
        self.read_again = frozenset(slots[node] for node in self._read_in_checkpoints(slots))

    def _read_in_checkpoints(self, inputs: Collection[fx.Node]) -> set[fx.Node]:
        """The inputs that the backward reads in checkpoints that it computes again, and nowhere else."""
        saved = set(self._known)
        read: set[fx.Node] = set()
        elsewhere: set[fx.Node] = set()
        needed = self._needed((), saved)
        for node, again in needed:
            if again or node not in saved:
                inside = again or _is_formula(node) and node.meta.get("differentiates") is not None
                (read if inside else elsewhere).update(n for n in node.all_input_nodes if n in inputs)
        # what was saved in the place of what eager computes anew
        early = [n for n in saved if ((n, True) in needed or _is_formula(n)) and shown_input(n) is None]
        return read - elsewhere - needed_for(early, set())

    def gradients(self, watched: Sequence[torch.Tensor], given: Sequence[Any]) -> list[Any]:
        """The gradients: of the watched inputs and what the backward is called with. Raises what the operators do on the other data."""
        self._report("the data of an input was replaced between a forward and its backward", "")
        values: dict[Step, Any] = {(node, False): value for node, value in zip(self._known, given, strict=True)}
        now = {self._inputs[slot]: tensor.detach() for slot, tensor in zip(self.watched, watched, strict=True)}
        for step in self._order or self._plan(now):
            read = {
                n: now[n] if n in now and _reads_now(step) else values[n, _is_again(step, n)] for n in step[0].all_input_nodes
            }
            args, kwargs = fx.map_arg((step[0].args, step[0].kwargs), read.__getitem__)
            values[step] = function_of(step[0])(*args, **kwargs)
        return [values[g, False] if isinstance(g, fx.Node) else g for g in self._gradients]

    def _plan(self, now: Collection[fx.Node]) -> list[Step]:
        """What to compute, in order: of what was saved those values are computed anew that a formula gives and whose operands are there."""
        there, given = {(node, False) for node in self._known}, set(self._known)
        for node in self._graph.nodes:
            for step in _steps(node):
                if all((n, again) in there or n in now and _reads_now(step) for n, again in _operands(step)):
                    there.add(step)
                    if _is_formula(node):
                        given.discard(node)
        needed = self._needed(now, given)
        steps = (step for node in self._graph.nodes for step in _steps(node))
        self._order = [step for step in steps if step in needed and (step[1] or step[0] not in given)]
        return self._order

    def _needed(self, now: Collection[fx.Node], given: Collection[fx.Node]) -> set[Step]:
        """What the gradients are computed from, not going past what is given."""
        found: set[Step] = set()
        waiting: list[Step] = [(g, False) for g in self._gradients if isinstance(g, fx.Node)]
        while waiting:
            step = waiting.pop()
            if step in found:
                continue
            found.add(step)
            if step[1] or step[0] not in given:
                waiting += [operand for operand in _operands(step) if not (operand[0] in now and _reads_now(step))]
        return found


def _steps(node: fx.Node) -> list[Step]:
    if node.op != "call_function":
        return []
    return [(node, again) for again in ((False,) if _is_formula(node) or not _region(node) else (True, False))]


def _operands(step: Step) -> Iterator[Step]:
    return ((n, _is_again(step, n)) for n in step[0].all_input_nodes)


def _is_again(step: Step, operand: fx.Node) -> bool:
    """Whether a checkpoint computes an operand again before it is read."""
    region = step[0].meta.get("differentiates") if _is_formula(step[0]) else _region(step[0]) if step[1] else None
    return region is not None and not _is_formula(operand) and _region(operand) == region


def _reads_now(step: Step) -> bool:
    """Whether inputs are read as they are in the backward."""
    return step[1] or _is_formula(step[0])


def _region(node: fx.Node) -> Any:
    return node.meta.get("recompute_region") if "recompute" in node.meta else None


def _is_formula(node: fx.Node) -> bool:
    return node.op == "call_function" and node.meta.get("phase") == "backward"
