"""Parts of fx nodes as what they are known to be, and what nodes are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

__all__ = ["ancestors", "called", "function_of", "operand_of"]


def operand_of(node: fx.Node, place: int = 0) -> fx.Node:
    """The argument at a place where another node always is."""
    found = node.args[place]
    assert isinstance(found, fx.Node)
    return found


def function_of(node: fx.Node) -> Callable[..., Any]:
    """What a node of kind call_function calls."""
    target = node.target
    assert not isinstance(target, str)
    return target


def called(graph: fx.Graph, like: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
    """A call where the graph is being written to, with the marks of another node and a value of its own."""
    node = graph.call_function(target, args, kwargs)
    node.meta.update(like.meta)
    values, named = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
    with torch.no_grad():
        node.meta["val"] = target(*values, **named)
    return node


def ancestors(of: Iterable[fx.Node]) -> set[fx.Node]:
    """These nodes and all behind them."""
    found: set[fx.Node] = set()
    waiting = list(of)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found
