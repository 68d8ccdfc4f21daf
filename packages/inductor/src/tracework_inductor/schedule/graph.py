"""Dependency order between nodes: who writes what, who must come first, what nobody needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.buffer import ExternNode
from .plan import Program


class Dependencies:
    """predecessors[k]: node numbers that must run before node k."""

    def __init__(self, program: Program, nodes: Sequence[Any]) -> None:
        self.nodes = nodes
        self.writer: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.predecessors: list[set[int]] = []
        for k, node in enumerate(nodes):
            before: set[int] = set()
            for name in node.reads:
                if name in self.writer:
                    before.add(self.writer[name])
                self.readers.setdefault(name, []).append(k)
            if node.mutates is not None:
                # An overwrite comes after the first write and after everybody who reads the old value.
                before.update(r for r in self.readers.get(node.mutates, ()) if r != k)
                if node.mutates in self.writer:
                    before.add(self.writer[node.mutates])
            for name in node.writes:
                self.writer[name] = k
            before.discard(k)
            self.predecessors.append(before)


def output_buffers(program: Program) -> set[str]:
    """Buffers that must be in memory when the graph ends: outputs and new values of mutated inputs."""
    needed = {o.buffer for o in program.outputs if o.buffer is not None}
    needed.update(program.mutated)
    return needed


def alias_root(buffers: Mapping[str, Any], name: str) -> str:
    """The buffer that owns the memory of `name`."""
    while name in buffers and buffers[name].kind == "alias" and buffers[name].base is not None:
        name = buffers[name].base
    return name


def live_nodes(program: Program) -> list[Any]:
    """Nodes somebody needs: those that lead to an output, a mutation or an effect with an order."""
    needed = output_buffers(program)
    kept: list[Any] = []
    for node in reversed(program.nodes):
        ordered = isinstance(node, ExternNode) and any(w not in program.buffers for w in node.writes)
        if not ordered and not (node.writes & needed):
            continue
        kept.append(node)
        needed |= node.reads
        if node.mutates is not None:
            needed.add(node.mutates)
    return kept[::-1]
