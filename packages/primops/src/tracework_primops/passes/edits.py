"""Replacing nodes in a copy of a graph: what all passes share."""

from __future__ import annotations

from collections.abc import Callable

import torch.fx

from ..collectives import is_collective
from ..graph import PrimGraph
from ..op import Kind, Op, Tag

Rewrite = Callable[[torch.fx.Node], torch.fx.Node | None]


def is_pure(node: torch.fx.Node) -> bool:
    """Whether the node only computes: no random numbers, no writes, nothing that other processes take part in, and no check of data, which
    returns nothing."""
    target = node.target
    if is_collective(target):
        return False
    if isinstance(target, Op):
        return Tag.RANDOM not in target.tags and Tag.MUTATES not in target.tags and target.family != "rng"
    schema = getattr(target, "_schema", None)
    if schema is None:
        return True
    return bool(schema.returns) and not schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags


def is_prim(node: object, *names: str) -> bool:
    """Whether this is a call of one of these prims."""
    return isinstance(node, torch.fx.Node) and isinstance(node.target, Op) and node.target.name in names


def writes(node: torch.fx.Node) -> bool:
    """Whether the call changes one of its arguments."""
    if isinstance(node.target, Op):
        return Tag.MUTATES in node.target.tags
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def layout_matters(node: torch.fx.Node) -> bool:
    """Whether someone sees the strides of this node: the caller of the graph, a library call, or what reads its memory by strides."""
    return reads_memory(node) or any(
        u.op == "output" or not isinstance(u.target, Op) or u.target.kind is Kind.LIBRARY or writes(u) for u in node.users
    )


def reads_memory(node: torch.fx.Node) -> bool:
    """Whether elements are found by where they lie in the memory of this node."""
    return any(is_prim(u, "as_strided") or (memory_of(u) is not u and reads_memory(u)) for u in node.users)


def memory_of(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory this one is read from: what it is a view of, or itself."""
    while (
        isinstance(node.target, Op) and node.target.kind is Kind.VIEW and node.target.name != "flip"
    ):  # tensors have no such view
        node = node.args[0]
    return node


def escapes(node: torch.fx.Node) -> bool:
    """Whether the caller gets the node, or a view of it."""
    return any(u.op == "output" or (memory_of(u) is not u and escapes(u)) for u in node.users)


def both_returned(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether they are two outputs of the graph, which stay two tensors, or two memories of which the caller gets views."""
    if any(u.op == "output" for u in a.users) and any(u.op == "output" for u in b.users):
        return True
    return memory_of(a) is a and memory_of(b) is b and escapes(a) and escapes(b)


def written_later(node: torch.fx.Node) -> bool:
    """Whether a call changes the node, or a view of it."""
    return any(writes(u) or (memory_of(u) is not u and written_later(u)) for u in node.users)


def can_replace(node: torch.fx.Node, other: torch.fx.Node) -> bool:
    """Whether readers of `node` may read `other`: memory that is written later may not be read instead of a copy made before, and what
    the caller gets in memory of its own stays so."""
    memory = memory_of(other)
    if both_returned(node, other):
        return False
    if memory.op == "placeholder" and written_later(memory):
        return False
    if memory_of(node) is node and escapes(node) and (memory.op == "placeholder" or escapes(memory)):
        return False
    if not layout_matters(node):
        return True
    mine, others = node.meta["spec"], other.meta["spec"]
    if reads_memory(node) and mine.offset != others.offset:
        return False
    return other.op != "placeholder" and mine.strides == others.strides


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
