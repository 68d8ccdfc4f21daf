"""A backward in stages, each of which gives the gradients of some parameters: what sends them to other processes begins while the next
stages are computed.

Gradients are taken in the order in which the backward has them, and a stage is closed where its parameters reach so many bytes, as buckets
of DistributedDataParallel are. A stage computes all that reads its parameters, too: who gets a parameter's gradient may write to it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import fx
from tracework_primops import checks_indices, copy_node

from .. import _torch
from ..contracts import Backward, Stage
from ..signature import InputInfo, StageFacts
from .split import has_effect, is_view

__all__ = ["in_stages"]

Place = int
"""Of a gradient, among those of a component."""


def in_stages(
    backward: Backward, infos: Sequence[InputInfo], shown: Mapping[str, int], limits: tuple[int, int]
) -> tuple[Stage, ...]:
    """The stages, none where one has all gradients. shown: names of the backward's placeholders -> slots of the inputs that they are, or
    are views of; limits: bytes of the first stage's parameters, and of the others'."""
    *nodes, output = backward.graph.graph.nodes
    gradients: Sequence[Any] = output.args[0]  # type: ignore[assignment]  # of a functional graph
    if any(has_effect(node) or checks_indices(node) for node in nodes if node.op == "call_function"):
        return ()
    slots = dict(enumerate(backward.component.inputs))
    readers = _readers(nodes, shown)
    roots = {
        place: [*([g] if isinstance(g, fx.Node) else ()), *readers.get(slots.get(place, -1), ())]
        for place, g in enumerate(gradients)
    }
    sizes = {place: _bytes(g) if place in slots and infos[slots[place]].is_parameter else 0 for place, g in enumerate(gradients)}
    groups = _groups(nodes, roots, sizes, limits)
    return _cut(backward, nodes, gradients, groups, roots) if len(groups) > 1 else ()


def _bytes(gradient: Any) -> int:
    value = gradient.meta["val"] if isinstance(gradient, fx.Node) else None
    if not isinstance(value, torch.Tensor) or not isinstance(value.numel(), int):
        return 0
    return value.numel() * value.element_size()


def _readers(nodes: Iterable[fx.Node], shown: Mapping[str, int]) -> dict[int, list[fx.Node]]:
    """Slot of an input -> the nodes that read its memory."""
    found: dict[int, list[fx.Node]] = {}
    shows: dict[fx.Node, int] = {}
    for node in nodes:
        if node.op == "placeholder" and node.name in shown:
            shows[node] = shown[node.name]
        for given in node.all_input_nodes:
            if given in shows and is_view(node):
                shows[node] = shows[given]
            elif given in shows:
                found.setdefault(shows[given], []).append(node)
    return found


def _groups(
    nodes: Sequence[fx.Node], roots: Mapping[Place, Sequence[fx.Node]], sizes: Mapping[Place, int], limits: tuple[int, int]
) -> list[list[Place]]:
    """The gradients of each stage."""
    position = {node: number for number, node in enumerate(nodes)}
    groups: list[list[Place]] = [[]]
    filled, limit = 0, limits[0]
    for place in sorted(roots, key=lambda place: max((position[node] for node in roots[place]), default=-1)):
        if filled >= limit:
            groups.append([])
            filled, limit = 0, limits[1]
        groups[-1].append(place)
        filled += sizes[place]
    if len(groups) > 1 and not filled:  # gradients of what is no parameter
        groups[-2:] = [groups[-2] + groups[-1]]
    return groups


def _cut(
    backward: Backward,
    nodes: Sequence[fx.Node],
    gradients: Sequence[Any],
    groups: Sequence[Sequence[Place]],
    roots: Mapping[Place, Sequence[fx.Node]],
) -> tuple[Stage, ...]:
    position = {node: number for number, node in enumerate(nodes)}
    done = {node for node in nodes if node.op == "placeholder"}
    computed: list[list[fx.Node]] = []
    taken: list[list[fx.Node]] = []
    for group in groups:
        own, given = _needed((root for place in group for root in roots[place] if root not in done), done)
        computed.append(sorted(own, key=position.__getitem__))
        # also the gradients of the stage that an earlier one has computed, and sizes, which shapes are made of
        given |= {g for place in group if isinstance(g := gradients[place], fx.Node) and g in done}
        given |= {node for node in nodes if node.op == "placeholder" and not _is_tensor(node)}
        taken.append(sorted(given, key=position.__getitem__))
        done |= {node for node in own if _is_tensor(node)}
    numbers = {node: number for number, node in enumerate(n for n in nodes if n.op == "placeholder")}
    static = {node for node, number in numbers.items() if number in backward.spec.static_inputs}
    stages = []
    for number, (group, made, takes) in enumerate(zip(groups, computed, taken, strict=True)):
        later = set(chain.from_iterable(taken[number + 1 :]))
        handed_on = [node for node in made if node in later]
        results = [gradients[place] for place in group]
        graph = _graph(takes, made, [*results, *handed_on])
        spec = replace(
            backward.spec,
            static_inputs=frozenset(place for place, node in enumerate(takes) if node in static),
            visible=len(results),
        )
        bases = {_base(node) for node in later}
        lent = tuple(n for n, g in enumerate(results) if isinstance(g, fx.Node) and _base(g) in bases)
        places = tuple(numbers[node] for node in takes)
        numbers |= {node: len(numbers) + n for n, node in enumerate(handed_on)}
        stages.append(Stage(graph, spec, StageFacts(places, tuple(group), lent)))
    return tuple(stages)


def _needed(roots: Iterable[fx.Node], done: set[fx.Node]) -> tuple[set[fx.Node], set[fx.Node]]:
    """The nodes that are to be computed for the roots, and those of what is done that they are computed from."""
    own: set[fx.Node] = set()
    given: set[fx.Node] = set()
    waiting = [*roots]
    while waiting:
        node = waiting.pop()
        if node in own or node in given:
            continue
        if node in done:
            given.add(node)
            continue
        own.add(node)
        waiting += node.all_input_nodes
        if isinstance(node.meta.get("val"), (tuple, list)):  # it hands its results on by their own nodes alone
            waiting += [user for user in node.users if user.target is operator.getitem]
    return own, given


def _is_tensor(node: fx.Node) -> bool:
    """Sizes, and what has several results, are computed in each stage that reads them."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def _base(node: fx.Node) -> fx.Node:
    """What may have the same memory, with views and operators that may turn out to do nothing left out."""
    while node.op == "call_function":
        tensors = [n for n in node.all_input_nodes if _is_tensor(n)]
        if len(tensors) != 1 or not (is_view(node) or tensors[0].meta["val"].numel() == node.meta["val"].numel()):
            return node
        node = tensors[0]
    return node


def _graph(given: Sequence[fx.Node], own: Iterable[fx.Node], results: Sequence[Any]) -> fx.GraphModule:
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in given:
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(node.meta)
    copied: Callable[[fx.Node], fx.Node] = made.__getitem__
    for node in own:
        made[node] = copy_node(graph, node, copied)
    graph.output(tuple(made[result] if isinstance(result, fx.Node) else result for result in results))
    return _torch.graph_module(graph)
