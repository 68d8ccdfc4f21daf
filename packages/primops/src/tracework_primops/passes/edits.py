"""Replacing nodes in a copy of a graph: what all passes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from ..graph import PrimGraph
from ..op import Kind, Op, Tag

Rewrite = Callable[[torch.fx.Node], Any]


def is_pure(node: torch.fx.Node) -> bool:
    """Whether the node only computes: no random numbers, no writes."""
    target = node.target
    if isinstance(target, Op):
        return Tag.RANDOM not in target.tags and Tag.MUTATES not in target.tags and target.family != "rng"
    schema = getattr(target, "_schema", None)
    return schema is None or not schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags


def is_prim(node: Any, *names: str) -> bool:
    """Whether this is a call of one of these prims."""
    return isinstance(node, torch.fx.Node) and isinstance(node.target, Op) and node.target.name in names


def writes(node: torch.fx.Node) -> bool:
    """Whether the call changes one of its arguments."""
    if isinstance(node.target, Op):
        return Tag.MUTATES in node.target.tags
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def layout_matters(node: torch.fx.Node) -> bool:
    """Whether someone sees the strides of this node: the caller of the graph, or a library call."""
    return any(u.op == "output" or not isinstance(u.target, Op) or u.target.kind is Kind.LIBRARY or writes(u) for u in node.users)


def both_returned(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether they are two outputs of the graph, which stay two tensors."""
    return any(u.op == "output" for u in a.users) and any(u.op == "output" for u in b.users)


def can_replace(node: torch.fx.Node, other: torch.fx.Node) -> bool:
    """Whether readers of `node` may read `other`: an input that is written later, or an output that would alias one, may not."""
    if both_returned(node, other):
        return False
    if other.op == "placeholder" and any(writes(u) for u in other.users):
        return False
    if not layout_matters(node):
        return True
    return other.op != "placeholder" and node.meta["spec"].strides == other.meta["spec"].strides


def replace_nodes(graph: PrimGraph, rewrite: Rewrite) -> PrimGraph:
    """Ask `rewrite(node)` for each call; an earlier node it gives takes the place of this one. Same object if none does."""
    if not graph.editable and not any(rewrite(node) is not None for node in graph.calls):
        return graph
    edited, changed = graph.for_editing(), False
    for node in edited.calls:
        other = rewrite(node)
        if other is not None:
            node.replace_all_uses_with(other)
            edited.graph.erase_node(node)
            changed = True
    return edited if changed else graph
