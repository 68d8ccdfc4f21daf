"""A captured graph as it is, for what is not compiled: its checkpoints are torch's own then."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from tracework_primops import copy_node

from .. import _torch

__all__ = ["uncompiled"]


def uncompiled(gm: fx.GraphModule) -> Callable[..., Any]:
    """The graph's forward, with each checkpoint (meta["recompute_reads"]) that is whole in it as a function of its own."""
    nodes = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
    made = {id(n.meta.get("example_value")) for n in gm.graph.nodes}
    begun = {id(n.meta.get("recompute_reads")) for n in gm.graph.nodes if n.op == "placeholder"}
    marked = [
        n
        for n in nodes
        if (reads := n.meta.get("recompute_reads")) and id(reads) not in begun and made.issuperset(map(id, reads))
    ]
    if not marked:
        return gm.forward
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            copies[node] = copy_node(graph, node, copies.__getitem__)
    for inside in _regions(nodes, marked):
        if inside[0] in marked:
            _checkpointed(gm, inside, graph, copies)
        else:
            copies[inside[0]] = copy_node(graph, inside[0], copies.__getitem__)
    output = next(iter(reversed(gm.graph.nodes)))
    graph.output(fx.map_arg(output.args[0], copies.__getitem__))
    return _torch.graph_module(graph, gm).forward


def _regions(nodes: Sequence[fx.Node], marked: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """The nodes in order, those from the first to the last one of a checkpoint together."""
    places = {node: place for place, node in enumerate(nodes)}
    regions, begin = [], 0
    for _, group in groupby(marked, key=lambda n: id(n.meta["recompute_reads"])):
        first, *others = map(places.__getitem__, group)
        last = others[-1] if others else first
        regions += [[n] for n in nodes[begin:first]]
        regions.append([*nodes[first : last + 1]])
        begin = last + 1
    return [*regions, *([n] for n in nodes[begin:])]


def _checkpointed(
    gm: fx.GraphModule, inside: list[fx.Node], graph: fx.Graph, copies: dict[fx.Node, fx.Node], depth: int = 1
) -> None:
    """Nodes of a checkpoint as one node of `graph`, and those that take its results. depth: how many checkpoints they are in there."""
    reads = [id(read) for read in inside[0].meta["recompute_reads"]]
    given = [n for n in copies if id(n.meta.get("example_value")) in reads]
    here = set(inside)
    others = [n for n in copies if n not in given and not here.isdisjoint(n.users)]
    made = [n for n in inside if not here.issuperset(n.users)]
    part, inner = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in (*given, *others):
        inner[node] = part.placeholder(node.name)
    for level, group in groupby(inside, key=lambda node: _level(node, depth + 1)):
        if level is not None:
            _checkpointed(gm, [*group], part, inner, depth + 1)
            continue
        for node in group:
            inner[node] = copy_node(part, node, inner.__getitem__)
    part.output(tuple(inner[n] for n in made))
    run = _Checkpoint(_torch.graph_module(part, gm).forward, len(given), _is_whole(inside, depth))
    results = graph.call_function(run, tuple(copies[n] for n in (*given, *others)))
    for place, node in enumerate(made):
        copies[node] = graph.call_function(operator.getitem, (results, place))


def _level(node: fx.Node, depth: int) -> Any:
    """The checkpoint that a node is in, counted from the outermost, which is 1; None where it is in fewer."""
    levels = node.meta.get("recompute_levels", ())
    return levels[-depth] if len(levels) >= depth else None


def _is_whole(inside: list[fx.Node], depth: int) -> bool:
    """Whether a checkpoint is a reentrant one."""
    return any(level[1] for node in inside if (level := _level(node, depth)) is not None)


class _Checkpoint:
    """A call of `forward` whose first arguments are those of the checkpoint; the others are what its function reads beside them. whole: the
    backward runs all of it again."""

    __name__ = "checkpoint"

    def __init__(self, forward: Callable[..., Any], count: int, whole: bool) -> None:
        self._forward, self._count, self._whole = forward, count, whole

    def __call__(self, *args: torch.Tensor) -> Any:
        given, others = args[: self._count], args[self._count :]
        with set_checkpoint_early_stop(not self._whole):
            return checkpoint(lambda *given: self._forward(*given, *others), *given, use_reentrant=False)
