"""Check a graph against its level; an error shows the node and the lines around it."""

from __future__ import annotations

from typing import Any

import torch.fx

from ..errors import VerifyError
from ..spec import SizeSpec, TensorSpec
from .levels import LEVELS
from .prim_graph import ROLES, PrimGraph

CONTEXT = 5


def verify_level(graph: torch.fx.Graph, level: str) -> None:
    """Raises VerifyError for the first node that is not legal at this level."""
    check = LEVELS[level]
    seen: set[torch.fx.Node] = set()
    for node in graph.nodes:
        problem = check(node) or _used_before(node, seen)
        if problem:
            raise VerifyError(_message(graph, node, f"level {level}: {problem}"))
        seen.add(node)


def verify(prim_graph: PrimGraph) -> PrimGraph:
    """The same graph when it is a legal PrimGraph. Raises VerifyError otherwise."""
    graph = prim_graph.graph
    if prim_graph.role not in ROLES:
        raise VerifyError(f"role {prim_graph.role!r} is none of {', '.join(ROLES)}")
    verify_level(graph, "prim")
    placeholders = prim_graph.placeholders
    if len(placeholders) != len(prim_graph.inputs):
        raise VerifyError(f"{len(placeholders)} placeholders but {len(prim_graph.inputs)} inputs")
    for node in graph.nodes:
        if node.op != "output" and not _is_spec(node.meta["spec"]):
            raise VerifyError(_message(graph, node, f"meta['spec'] is {node.meta['spec']!r}, not a spec"))
    return prim_graph


def _is_spec(spec: Any) -> bool:
    if isinstance(spec, (tuple, list)):
        return all(map(_is_spec, spec))
    return spec is None or isinstance(spec, (TensorSpec, SizeSpec))


def _used_before(node: torch.fx.Node, seen: set[torch.fx.Node]) -> str | None:
    early = [n.name for n in node.all_input_nodes if n not in seen]
    return f"uses %{early[0]} before it is made" if early else None


def _message(graph: torch.fx.Graph, node: torch.fx.Node, problem: str) -> str:
    nodes = list(graph.nodes)
    place = nodes.index(node)
    lines = [f"%{node.name}: {problem}"]
    if node.meta.get("origin"):
        lines.append(f"from {node.meta['origin']}")
    for other in nodes[max(0, place - CONTEXT) : place + CONTEXT + 1]:
        lines.append(("--> " if other is node else "    ") + other.format_node() if other.format_node() else "    output")
    return "\n".join(lines)
