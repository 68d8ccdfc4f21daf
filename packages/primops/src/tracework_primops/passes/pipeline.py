"""The driver: runs passes in order, tells an observer about each, verifies between them when asked.

A pass takes a PrimGraph and returns one: the same object when it has nothing to do, otherwise another with the edits.
The fx graph inside is copied before the first edit, unless the PrimGraph is marked as editable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..graph import PrimGraph, verify


@dataclass(frozen=True)
class Pass:
    """A named rewrite."""

    name: str
    run: Callable[[PrimGraph], PrimGraph]


def run_passes(
    graph: PrimGraph,
    passes: Iterable[Pass] | None = None,
    observe: Callable[[str, PrimGraph], None] | None = None,
    check: bool = False,
) -> PrimGraph:
    """The graph after all passes (PRIM_PASSES unless given). `observe(pass name, graph)` is called when a pass changed it."""
    if passes is None:
        from . import PRIM_PASSES as passes
    given = graph
    for step in passes:
        after = step.run(graph)
        if after is not graph and observe is not None:
            observe(f"primops.{step.name}", after)
        graph = verify(after) if check else after
    return graph if graph is given else graph.replace(editable=given.editable)
