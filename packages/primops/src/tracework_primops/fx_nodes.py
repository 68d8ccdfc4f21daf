"""Nodes of fx graphs, made as torch.fx makes them at a third of the cost.

`Graph.create_node` looks through all arguments for symbolic numbers and spells the target's name anew for each node. Compiling a model
makes tens of thousands of nodes, and none of ours has such an argument: sizes are nodes or expressions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch.fx

from ._torch import node_name

_NAMES: dict[str, str] = {}  # what a target calls itself -> the name of its nodes
_set_args = torch.fx.Node.args.fset
_set_kwargs = torch.fx.Node.kwargs.fset


def add_node(
    graph: torch.fx.Graph,
    op: str,
    target: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> torch.fx.Node:
    """`graph.create_node(op, target, args, kwargs, name)` for arguments without torch.SymInt and its like."""
    if name is None and op == "call_function":
        name = _NAMES.get(target.__name__) or _name_of(graph, target)
    node = graph.create_node(op, target, name=name)
    if args:
        _set_args(node, args)
    if kwargs:
        _set_kwargs(node, kwargs)
    return node


def copy_node(graph: torch.fx.Graph, node: torch.fx.Node, transform: Callable[[torch.fx.Node], Any]) -> torch.fx.Node:
    """`graph.node_copy(node, transform)`."""
    args, kwargs = torch.fx.map_arg(node.args, transform), torch.fx.map_arg(node.kwargs, transform)
    made = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
    if args:
        _set_args(made, args)
    if kwargs:
        _set_kwargs(made, kwargs)
    made.meta.update(copy.copy(node.meta))
    return made


def _name_of(graph: torch.fx.Graph, target: Any) -> str:
    name = _NAMES[target.__name__] = node_name(graph, target)
    return name
