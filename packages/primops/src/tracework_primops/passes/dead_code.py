"""Drop pure nodes that nobody reads, but for those that refuse indices out of range. Inputs stay, because callers pass them by place."""

from __future__ import annotations

from ..graph import PrimGraph
from ..index_checks import checks_indices
from .edits import is_pure


def dead_code(graph: PrimGraph) -> PrimGraph:
    """Without unread nodes."""
    alive = set()
    for node in reversed(list(graph.graph.nodes)):
        if node.op in ("placeholder", "output") or node in alive or not is_pure(node) or checks_indices(node):
            alive.add(node)
            alive.update(node.all_input_nodes)
    dead = {n.name for n in graph.calls if n not in alive}
    if not dead:
        return graph
    edited = graph.for_editing()
    for node in reversed(edited.calls):
        if node.name in dead:
            edited.graph.erase_node(node)
    return edited
