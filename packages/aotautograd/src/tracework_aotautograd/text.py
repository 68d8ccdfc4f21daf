"""Functional graphs as text that reads back: they are printed as primops prints graphs, with ATen overloads for prims."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx
from tracework_primops import Expr, FakeMode, PrimGraph, SizeSpec, SymbolTable, TensorSpec, add_node, decompose

from .contracts import GraphSpec

__all__ = ["functional_graph", "functional_module"]


def functional_graph(gm: fx.GraphModule, spec: GraphSpec | None = None) -> PrimGraph:
    """A functional graph with the specs of its values in the place of fakes: it prints and runs as any PrimGraph."""
    return decompose(gm, profile="none", spec=spec)


def functional_module(graph: PrimGraph) -> tuple[fx.GraphModule, GraphSpec]:
    """The inverse: nodes have fakes in meta["val"], of a mode of their own."""
    table = graph.symbols or SymbolTable()
    mode = FakeMode(table)

    def fake(spec: Any) -> Any:
        if isinstance(spec, tuple):
            return tuple(map(fake, spec))
        if isinstance(spec, TensorSpec):
            return mode.make(spec)
        if isinstance(spec, SizeSpec):
            return table.to_symint(spec.expr) if isinstance(spec.expr, Expr) else spec.expr
        return None

    made = fx.Graph()
    nodes: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), nodes.__getitem__)
        nodes[node] = copy = add_node(made, node.op, node.target, args, kwargs, name=node.name)
        if node.op == "output":
            continue
        whole = nodes[node.args[0]].meta["val"] if node.target is operator.getitem else None
        copy.meta["val"] = whole[node.args[1]] if isinstance(whole, tuple) else fake(node.meta["spec"])
        copy.meta["origin"] = node.meta.get("origin")
    static = frozenset(i for i, given in enumerate(graph.inputs) if given.is_static)
    mutated = frozenset(i for i, given in enumerate(graph.inputs) if given.is_mutated)
    return fx.GraphModule({}, made), GraphSpec(graph.role, static, mutated, graph.symbols, mode)
