"""Numbers that a GPU needs from the CPU go there in one copy: each copy waits for the device, whatever its size.

An optimizer that keeps its counts of steps on the CPU, as torch's do, sends several numbers for each parameter.
"""

from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops import GraphBuilder, PrimGraph, PrimValue, prims
from tracework_primops.passes.edits import is_prim, is_pure

from ..given_numbers import few_given


def gather_numbers(graph: PrimGraph) -> PrimGraph:
    """The graph with such copies gathered; the same object where there is nothing to gather."""
    groups = [[n.name for n in group] for group in _groups(graph.calls) if len(group) > 1]
    if not groups:
        return graph
    copy = graph.copy()
    by_name = {n.name: n for n in copy.graph.nodes}
    for group in groups:
        _gather(copy.graph, [by_name[name] for name in group])
    return copy


def _groups(nodes: Sequence[torch.fx.Node]) -> list[list[torch.fx.Node]]:
    """Copies of single numbers between which nothing has an effect, and none of which leads to another's operand."""
    groups: list[list[torch.fx.Node]] = []
    given = few_given(nodes)
    open_groups: dict[Any, tuple[list[torch.fx.Node], set[torch.fx.Node]]] = {}
    for node in nodes:
        if not is_pure(node):
            open_groups.clear()
            continue
        for _, behind in open_groups.values():
            if not behind.isdisjoint(node.all_input_nodes):
                behind.add(node)
        if node in given or not _is_number_to_gpu(node):
            continue
        spec = node.meta["spec"]
        members, behind = open_groups.get((spec.dtype, spec.device), ([], set()))
        if not members or node in behind:
            members, behind = open_groups[spec.dtype, spec.device] = [], set()
            groups.append(members)
        members.append(node)
        behind.add(node)
    return groups


def _is_number_to_gpu(node: torch.fx.Node) -> bool:
    if not is_prim(node, "device_put"):
        return False
    source = node.all_input_nodes[0].meta["spec"]
    return source.device.type == "cpu" and node.meta["spec"].device.type != "cpu" and source.ndim == 0


def _gather(graph: torch.fx.Graph, group: list[torch.fx.Node]) -> None:
    last, device = group[-1], group[0].meta["spec"].device
    builder = GraphBuilder(graph)
    builder.origin = group[0].meta.get("origin")
    behind, waiting = set(group), []
    for node in graph.nodes:
        if node is last:
            break
        if node not in behind and not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
            waiting.append(node)
    with graph.inserting_before(last), builder:
        sources = [n.all_input_nodes[0] for n in group]
        numbers = tuple(prims.reshape(PrimValue(s.meta["spec"], s), (1,)) for s in sources)
        there = prims.device_put(prims.cat(numbers, 0), device)
        for place, node in enumerate(group):
            node.replace_all_uses_with(prims.reshape(prims.slice(there, 0, place, place + 1, 1), ()).node)
    for node in waiting:
        last.prepend(node)
    for node in group:
        graph.erase_node(node)
