"""Parts of fx nodes as what they are known to be, and what nodes are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import fx

__all__ = ["ancestors", "function_of", "operand_of"]


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
