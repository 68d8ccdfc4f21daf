"""What the passes of this folder have in common: some calls of a graph are rewritten in a copy of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tracework_primops import GraphBuilder, PrimGraph, PrimValue, prims


def rewritten(graph: PrimGraph, wanted: Callable[[Any], bool], rewrite: Callable[[Any], None]) -> PrimGraph:
    """A copy of the graph in which `rewrite` was called with each node that is wanted; the same object where none is."""
    names = {n.name for n in graph.calls if wanted(n)}
    if not names:
        return graph
    copy = graph.copy()
    for node in [n for n in copy.calls if n.name in names]:
        rewrite(node)
    return copy


@contextmanager
def built_before(node: Any) -> Iterator[None]:
    """Prims that are called in the block stand before `node`, and come from where it does."""
    builder = GraphBuilder(node.graph)
    builder.origin = node.meta.get("origin")
    with node.graph.inserting_before(node), builder:
        yield


def value_of(node: Any) -> PrimValue:
    """What a node computes, as prims take it."""
    return PrimValue(node.meta["spec"], node)


def transposed(node: Any) -> Any:
    """The matrix that a node is the transpose of, or None."""
    return node.args[0] if node.target is prims.permute and tuple(node.args[1]) == (1, 0) else None


__all__ = ["built_before", "rewritten", "transposed", "value_of"]
