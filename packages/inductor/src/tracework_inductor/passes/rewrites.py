"""What the passes of this folder have in common: some calls of a graph are rewritten in a copy of it."""

from collections.abc import Callable
from typing import Any

from tracework_primops import PrimGraph


def rewritten(graph: PrimGraph, wanted: Callable[[Any], bool], rewrite: Callable[[Any], None]) -> PrimGraph:
    """A copy of the graph in which `rewrite` was called with each node that is wanted; the same object where none is."""
    names = {n.name for n in graph.calls if wanted(n)}
    if not names:
        return graph
    copy = graph.copy()
    for node in [n for n in copy.calls if n.name in names]:
        rewrite(node)
    return copy


__all__ = ["rewritten"]
