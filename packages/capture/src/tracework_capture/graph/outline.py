"""Outlining: nodes that were recorded one after the other become a graph of their own, which one node of the outer graph calls.

A region is traced in place, as all else, so guards, side effects and breaks need no second mechanism; afterwards its nodes are
moved. Nodes that compute with sizes stay outside: other parts of the outer graph may read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import fx

from ..errors import BreakGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import GraphBuilder

__all__ = ["Outlined", "Region", "outline", "region"]


@dataclass(frozen=True)
class Region:
    """Where in the graph a region starts."""

    last: fx.Node | None

    def nodes(self, builder: GraphBuilder) -> list[fx.Node]:
        """The nodes recorded since, without placeholders and arithmetic on sizes."""
        found: list[fx.Node] = []
        for node in reversed(builder.graph.nodes):
            if node is self.last:
                break
            if node.op != "placeholder" and not isinstance(node.meta.get("example_value"), torch.SymInt):
                found.append(node)
        return found[::-1]


@dataclass(frozen=True)
class Outlined:
    """A graph of its own, and the nodes of the outer graph that stand for its placeholders."""

    module: fx.GraphModule
    inputs: tuple[fx.Node, ...]

    def giving(self, written: Sequence[fx.Node]) -> Outlined:
        """The same graph working on copies of these nodes of the outer graph, which it gives after its results, in the place of writing to
        them."""
        graph = self.module.graph
        places = dict(zip(self.inputs, (node for node in graph.nodes if node.op == "placeholder")))
        first = next(node for node in graph.nodes if node.op != "placeholder")
        output = next(iter(reversed(graph.nodes)))
        copies = []
        for node in written:
            with graph.inserting_before(first):
                if node not in places:  # the other arm writes to it
                    places[node] = graph.placeholder(node.name)
                    places[node].meta["example_value"] = places[node].meta["val"] = node.meta["example_value"]
        for place in map(places.__getitem__, written):
            with graph.inserting_before(first):
                copy = graph.call_method("clone", (place,))
            place.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
            copies.append(copy)
        output.args = ((*output.args[0], *copies),)
        self.module.recompile()
        return Outlined(self.module, tuple(places))


def region(builder: GraphBuilder) -> Region:
    """A region that starts here."""
    return Region(next(iter(reversed(builder.graph.nodes)), None))


def outline(builder: GraphBuilder, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node | None], name: str) -> Outlined:
    """Moves `nodes` out of the outer graph into a module that gives `outputs`, which may also be nodes from outside, as a tuple.

    Raises BreakGraph where hooks that run at backward time are set up inside, since only the outer graph is cut there, and where sizes
    depend on data inside.
    """
    if any(n.meta.get("of_history") and n.meta.get("data_dependent") for n in nodes):
        raise BreakGraph("hook", f"a module with backward hooks in {name}, which is a graph of its own")
    inside = set(nodes)
    if any(user not in inside for node in nodes for user in node.users):  # arithmetic on sizes, which stays outside
        raise BreakGraph("dynamic_output_shape", f"a size of what {name}, which is a graph of its own, makes out of data")
    read = dict.fromkeys(a for n in nodes for a in n.all_input_nodes)
    read.update(dict.fromkeys(o for o in outputs if o is not None))
    inputs = tuple(n for n in read if n not in inside)
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta["example_value"] = made[node].meta["val"] = node.meta["example_value"]
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(None if o is None else made[o] for o in outputs))
    for node in reversed(nodes):
        builder.graph.erase_node(node)
    return Outlined(fx.GraphModule(torch.nn.Module(), graph, name), inputs)
