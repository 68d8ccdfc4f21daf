"""The driver: runs passes in order, tells an observer about each, verifies between them when asked.

A pass takes a PrimGraph and returns one: the same object when it has nothing to do, otherwise another with the edits.
The fx graph inside is copied before the first edit, unless the PrimGraph is marked as editable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..graph import PrimGraph, verify
from .collectives import collectives
from .common_subexpr import common_subexpr
from .constant_fold import constant_fold
from .dead_code import dead_code
from .remove_noop import remove_noop
from .simplify import simplify


@dataclass(frozen=True)
class Pass:
    """A named rewrite."""

    name: str
    run: Callable[[PrimGraph], PrimGraph]


PRIM_PASSES: tuple[Pass, ...] = (
    Pass("remove_noop", remove_noop),
    Pass("simplify", simplify),  # after remove_noop, so that patterns meet the producers themselves
    Pass("constant_fold", constant_fold),
    Pass("common_subexpr", common_subexpr),
    Pass("dead_code", dead_code),  # after the others, which leave unused nodes behind
    Pass("collectives", collectives),  # last: it is about the order of what is left
)


def run_passes(
    graph: PrimGraph,
    passes: Iterable[Pass] = PRIM_PASSES,
    observe: Callable[[str, PrimGraph], None] | None = None,
    check: bool = False,
) -> PrimGraph:
    """The graph after all passes. `observe(pass name, graph)` is called when a pass changed it."""
    given = graph
    for step in passes:
        after = step.run(graph)
        if after is not graph and observe is not None:
            observe(f"primops.{step.name}", after)
        graph = verify(after) if check else after
    return graph if graph is given else graph.replace(editable=given.editable)
