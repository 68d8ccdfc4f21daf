"""torch.cond: one arm when the condition is known; else both are traced and become an operator that runs the one that the data asks for."""

from __future__ import annotations

import torch

from ..graph.known import known_tensor
from ..graph.opaque_operators import ResultFacts, operator_of
from ..graph.outline import outline, region
from ..graph.region_checks import Unchanged
from .opaque_call import call_of_kind
from .sequence import ListValue, TupleValue
from .tensor import TensorValue, forget_nodes

NAMES = ("pred", "true_fn", "false_fn", "operands")


class Arms:
    """Two graphs, of which a tensor chooses one; `places` says which of the operator's tensors each takes."""

    __qualname__ = "cond"

    def __init__(self, graphs, places, facts):
        self.graphs, self.places, self.facts = graphs, places, facts

    def __call__(self, condition, *tensors):
        chosen = 0 if bool(condition) else 1
        found = self.graphs[chosen](*[tensors[i] for i in self.places[chosen]])
        return tuple(map(self.own, found, self.facts))

    @staticmethod
    def own(tensor, facts):
        """The tensor in memory of its own, as an operator gives it."""
        return torch.empty_strided(facts.sizes, facts.strides, dtype=facts.dtype, device=facts.device).copy_(tensor)


def cond_row(frame, args, kwargs):
    """torch.cond(pred, true_fn, false_fn, operands=())"""
    given = dict(zip(NAMES, args)) | kwargs
    condition, arms = given["pred"], (given["true_fn"], given["false_fn"])
    operands = given["operands"].unpack(frame) if "operands" in given else []
    if not isinstance(condition, TensorValue) or known_tensor(condition.node) is not None:
        return arms[0 if condition.truth(frame) else 1].call(frame, operands, {})
    if condition.example.numel() != 1 or frame.root.transforms:
        return frame.break_graph("call_unknown", "torch.cond of several conditions, or under a transform")
    traced = [traced_arm(frame, arm, operands) for arm in arms]
    return operator_result(frame, condition, traced)


def traced_arm(frame, arm, operands, name="torch.cond"):
    """(kind of the result, facts of its tensors, the arm as a graph of its own)"""
    start, unchanged = region(frame.graph), Unchanged(frame)
    found = arm.call(frame, operands, {})
    changed = unchanged.what_changed()
    if changed:
        return frame.break_graph("call_unknown", f"{name}: a function of it {changed}")
    leaves = [found] if isinstance(found, TensorValue) else found.unpack(frame) if type(found) in (TupleValue, ListValue) else []
    if not leaves or not all(type(leaf) is TensorValue and fits(leaf.example) for leaf in leaves):
        return frame.break_graph(
            "call_unknown", f"{name}: a function of it gives something else than tensors of known sizes without history"
        )
    facts = tuple(ResultFacts.of(leaf.example) for leaf in leaves)
    nodes = start.nodes(frame.graph)
    made = outline(frame.graph, nodes, [leaf.node for leaf in leaves], "Arm")
    forget_nodes(frame, set(nodes))
    return found.python_type(), facts, made


def fits(example):
    followed = torch.is_grad_enabled() and example.requires_grad
    return not followed and all(type(n) is int for n in (*example.shape, *example.stride()))


def operator_result(frame, condition, traced):
    """The node, and what it gives."""
    (kind, facts, _), (other_kind, other_facts, _) = traced
    if kind is not other_kind or facts != other_facts:
        return frame.break_graph("call_unknown", "torch.cond whose arms give different kinds of tensors")
    inputs = list(dict.fromkeys(node for *_, made in traced for node in made.inputs))
    if not all(isinstance(node.meta["example_value"], torch.Tensor) and fits(node.meta["example_value"]) for node in inputs):
        return frame.break_graph("call_unknown", "torch.cond whose arms read tensors with history or sizes that are symbols")
    places = [tuple(inputs.index(node) for node in made.inputs) for *_, made in traced]
    arms = Arms([made.module for *_, made in traced], places, facts)
    text = tuple(made.module.code for *_, made in traced), tuple(places)
    operator = operator_of(arms, arms, text, len(inputs) + 1, facts)
    return call_of_kind(frame, operator, (condition, *inputs), kind, len(facts))


COND_ROWS = {torch.cond: cond_row}
