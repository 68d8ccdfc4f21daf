"""torch.cond: one arm when the condition is known; else both are traced and become an operator that runs the one that the data asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ....graph.constant_data import known_tensor
from ....graph.opaque_operators import ArgumentSize, ResultFacts
from ....graph.outline import outline, region
from ....graph.traced_operators import traced_operator
from ...number.symint import compare_sizes
from ...protocol.calls import call
from ...protocol.memory import forget_nodes
from ...protocol.unchanged import Unchanged
from ..structure import leaves, rebuilt, same_structure
from ..tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import fx
    from tracework_primops import FakeTensor

    from ...protocol.kinds import AbstractTensor
    from ...protocol.value import Frame, Value

NAMES = ("pred", "true_fn", "false_fn", "operands")


class Arms:
    """Two graphs, of which a tensor chooses one; `places` says which of the operator's tensors each takes."""

    name = "cond"

    def __init__(self, graphs: list[torch.nn.Module], places: list[tuple[int, ...]]) -> None:
        self.graphs, self.places = graphs, places

    def __call__(self, condition: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chosen = 0 if bool(condition) else 1
        found: tuple[torch.Tensor, ...] = self.graphs[chosen](*[tensors[i] for i in self.places[chosen]])
        return found


@call(torch.cond)
def cond_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.cond(pred, true_fn, false_fn, operands=())"""
    given = dict(zip(NAMES, args)) | kwargs
    condition, arms = given["pred"], (given["true_fn"], given["false_fn"])
    operands = given["operands"].unpack(frame) if "operands" in given else []
    if not isinstance(condition, TensorValue) or known_tensor(condition.node) is not None:
        return arms[0 if condition.truth(frame) else 1].call(frame, operands, {})
    if condition.example.numel() != 1 or frame.modes.transforms:
        return frame.break_graph("call_unknown", "torch.cond of several conditions, or under a transform")
    (found, *first), (other, *second) = [traced_part(frame, arm, operands, "torch.cond") for arm in arms]
    if not same_structure(frame, found, other):
        return frame.break_graph("call_unknown", "torch.cond whose arms give results that are nested in different ways")
    return rebuilt(frame, found, iter(operator_results(frame, condition, [first, second])))


def traced_part(frame: Frame, function: Value, args: list[Value], name: str) -> tuple[Value, tuple[Any, ...], Any]:
    """(what a function gives, facts of its tensors, the function as a graph of its own)"""
    start, unchanged, random = region(frame.graph), Unchanged(frame, function, *args), frame.recording.effects.random
    frame.recording.effects.random = False
    found = function.call(frame, args, {})
    changed = unchanged.what_changed()
    if changed:
        return frame.break_graph("call_unknown", f"{name}: a function of it {changed}")
    results = leaves(frame, found)
    if not results or not all(type(leaf) is TensorValue for leaf in results):
        return frame.break_graph("call_unknown", f"{name}: a function of it gives something else than tensors")
    nodes = start.nodes(frame.graph)
    made = outline(frame.graph, nodes, [leaf.node for leaf in results], "Arm")
    forget_nodes(frame, set(nodes))
    if frame.recording.effects.random and any(is_followed(n) for n in made.inputs):
        return frame.break_graph(
            "call_unknown", f"{name}: a function of it draws random numbers, and its gradient would draw again"
        )
    frame.recording.effects.random |= random
    return found, tuple(ResultFacts.of(leaf.example) for leaf in results), made


def is_followed(node: fx.Node) -> bool:
    """Whether autograd follows what a node gives."""
    return torch.is_grad_enabled() and getattr(node.meta["example_value"], "requires_grad", False)


def is_fixed(example: torch.Tensor) -> bool:
    """Whether sizes and strides are known."""
    return all(type(n) is int for n in (*example.shape, *example.stride()))


def fits(example: FakeTensor) -> bool:
    """Whether a tensor has known sizes and no history."""
    return is_fixed(example) and not (torch.is_grad_enabled() and example.requires_grad)


def operator_results(frame: Frame, condition: AbstractTensor, traced: Sequence[Sequence[Any]]) -> list[Value]:
    """What the operator gives, tensor by tensor, for the facts and the graph of each arm."""
    (facts, _), (other_facts, _) = traced
    if not same_facts(frame, facts, other_facts):
        return frame.break_graph("call_unknown", "torch.cond whose arms give different kinds of tensors")
    inputs = list(dict.fromkeys(node for _, made in traced for node in made.inputs))
    places = [tuple(inputs.index(node) for node in made.inputs) for _, made in traced]
    arms = Arms([made.module for _, made in traced], places)
    text = tuple(made.module.code for _, made in traced), tuple(places)
    return call_traced(frame, arms, text, [condition.node, *inputs], facts)


def same_facts(frame: Frame, facts: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether these are the same kinds of tensors, of sizes that are guarded to be the same."""
    pairs = list(zip(facts, others))
    if len(facts) != len(others) or any((a.dtype, a.device, len(a.sizes)) != (b.dtype, b.device, len(b.sizes)) for a, b in pairs):
        return False
    sizes = [pair for a, b in pairs for pair in zip(a.sizes + a.strides, b.sizes + b.strides)]
    return all(compare_sizes(frame, "==", a, b) for a, b in sizes)


def call_traced(
    frame: Frame,
    function: Any,
    text: tuple[Any, ...],
    nodes: list[fx.Node],
    facts: Sequence[Any],
) -> list[Value]:
    """What the operator of a function of traced graphs gives, tensor by tensor. Sizes that are symbols, of results too, are arguments."""
    sizes = [size for fact in facts for size in (*fact.sizes, *fact.strides) if type(size) is not int]
    of_sizes = {size: frame.graph.size_node(size) for size in sizes}
    nodes = list(dict.fromkeys([*nodes, *of_sizes.values()]))
    numbers = frozenset(i for i, node in enumerate(nodes) if not isinstance(node.meta["example_value"], torch.Tensor))
    facts = [fact.over(lambda size: ArgumentSize(nodes.index(of_sizes[size])) if size in of_sizes else size) for fact in facts]
    found = frame.graph.call(frame, traced_operator(function, text, len(nodes), facts, numbers), tuple(nodes))
    return found.unpack(frame) if len(facts) > 1 else [found]
