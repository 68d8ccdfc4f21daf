"""Merge nodes that compute the same: same target, same arguments, same spec. Not random ones, and not across a write."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch.fx

from ..graph import PrimGraph
from .edits import both_returned, is_prim, is_pure, replace_nodes, writes


def common_subexpr(graph: PrimGraph) -> PrimGraph:
    """With each value computed once."""
    return replace_nodes(graph, _Merger())


class _Merger:
    """Starts over when it meets another graph, because replace_nodes asks twice."""

    def __init__(self) -> None:
        self.owner: torch.fx.Graph | None = None
        self.known: dict[Hashable, torch.fx.Node] = {}

    def __call__(self, node: torch.fx.Node) -> torch.fx.Node | None:
        if node.graph is not self.owner:
            self.owner, self.known = node.graph, {}
        if writes(node):
            self.known.clear()
            return None
        if not is_pure(node) or is_prim(node, "empty"):
            return None
        try:
            key = (node.target, _key(node.args), _key(tuple(sorted(node.kwargs.items()))), _key(node.meta["spec"]))
            first = self.known.setdefault(key, node)
        except TypeError:  # an argument that cannot be hashed
            return None
        return None if first is node or both_returned(node, first) else first


def _key(value: Any) -> Hashable:
    """Hashable, telling 1 from 1.0 and True, and -0.0 from 0.0."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value), value)
