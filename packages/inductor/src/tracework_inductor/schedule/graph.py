"""Dependency order between nodes: who writes what, who must come first, what nobody needs.

What may raise comes before all writes to the graph's inputs: a graph that raises leaves them as they were, so that its caller can do
the same in another way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.buffer import ExternNode, LoopNode
from .plan import Program


class Dependencies:
    """predecessors[k]: node numbers that must run before node k."""

    def __init__(self, program: Program, nodes: Sequence[Any]) -> None:
        self.nodes = nodes
        self.writer: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.predecessors: list[set[int]] = []
        raising: set[int] = set()
        for k, node in enumerate(nodes):
            before = set(raising) if writes_to_input(program.buffers, node) else set()
            if node.may_raise:
                raising.add(k)
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


def read_buffers(program: Program, kernels: Sequence[Any]) -> set[str]:
    """Buffers that own the memory of what a kernel reads or the graph gives, and the names by which those know it."""
    named = {name for kernel in kernels for name in kernel.reads} | output_buffers(program)
    return named | {alias_root(program.buffers, name) for name in named}


def ended_inputs(program: Program, kernels: Sequence[Any]) -> dict[int, list[str]]:
    """Kernel number -> inputs that nobody needs after it: what was saved for a backward is given back early."""
    buffers = program.buffers
    kept = {alias_root(buffers, o.buffer) for o in program.outputs if o.buffer is not None}
    last: dict[str, int] = {}
    for n, kernel in enumerate(kernels):
        for name in (*kernel.reads, *kernel.writes):
            last[alias_root(buffers, name)] = n
    ended: dict[int, list[str]] = {}
    for number, name in enumerate(program.inputs):
        if name in last and name not in kept and number not in program.static_inputs:
            ended.setdefault(last[name], []).append(name)
    return ended


def writes_to_input(buffers: Mapping[str, Any], node: Any) -> bool:
    """Whether the memory that a node overwrites is an input's."""
    return node.mutates is not None and buffers[alias_root(buffers, node.mutates)].kind == "input"


def raising_first(program: Program, nodes: list[Any]) -> list[Any]:
    """The nodes in an order in which what may raise comes before all writes to inputs, as far as there is one."""
    for order in (_unread_writes_last, _raising_early):
        first = next((k for k, node in enumerate(nodes) if writes_to_input(program.buffers, node)), len(nodes))
        if not any(node.may_raise for node in nodes[first:]):
            return nodes
        nodes = order(program.buffers, nodes)
    return nodes


def _unread_writes_last(buffers: Mapping[str, Any], nodes: list[Any]) -> list[Any]:
    """Writes to inputs that no other node waits for, at the end."""
    last: list[Any] = []
    rest: list[Any] = []
    read: set[str | None] = set()
    for node in reversed(nodes):
        waited_for = bool(read & (node.writes | {node.mutates}))
        if writes_to_input(buffers, node) and not waited_for:
            last.append(node)
        else:
            rest.append(node)
            read |= node.reads | {node.mutates}
    return [*rest[::-1], *last[::-1]]


def _raising_early(buffers: Mapping[str, Any], nodes: list[Any]) -> list[Any]:
    """What may raise, and what it is computed of, at the begin, where that overwrites nothing."""
    writer: dict[str, int] = {}
    needed: list[set[int] | None] = []
    early: set[int] = set()
    for k, node in enumerate(nodes):
        before = [needed[writer[name]] for name in node.reads if name in writer]
        known = [makers for makers in before if makers is not None]
        needed.append(None if node.mutates is not None or len(known) < len(before) else {k}.union(*known))
        writer.update(dict.fromkeys(node.writes, k))
        if node.may_raise:
            early |= needed[k] or set()
    return [*(nodes[k] for k in sorted(early)), *(node for k, node in enumerate(nodes) if k not in early)]


def live_nodes(program: Program) -> list[Any]:
    """Nodes somebody needs: those that lead to an output, a mutation or an effect with an order, and checks; what may raise before writes."""
    needed = output_buffers(program)
    kept: list[Any] = []
    for node in reversed(program.nodes):
        ordered = isinstance(node, ExternNode) and any(w not in program.buffers for w in node.writes)
        checks = isinstance(node, LoopNode) and node.domain == "check"
        if not ordered and not checks and not (node.writes & needed):
            continue
        kept.append(node)
        needed |= node.reads
        if node.mutates is not None:
            needed.add(node.mutates)
    return raising_first(program, kept[::-1])
