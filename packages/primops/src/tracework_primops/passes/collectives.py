"""Collectives start as soon as what they read is there, and are waited for before the first reader: meanwhile the graph computes.

They keep their order among each other, and the place of what is no computation. What they read, and what they give, is in memory until the wait:
no more than MOST_IN_FLIGHT bytes of either, beyond which the oldest is waited for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.fx

from ..collectives import is_collective, is_wait, wait_tensor
from ..fx_nodes import add_node
from ..graph import PrimGraph
from ..op import Kind, Op
from .edits import is_pure

MOST_IN_FLIGHT = 1 << 28
"""Bytes that collectives read, or give, which are on their way at the same time; those of one alone may be more."""


def collectives(graph: PrimGraph) -> PrimGraph:
    """With each result of a collective waited for once, as late as can be."""
    if not any(is_collective(node.target) for node in graph.calls):
        return graph
    edited = graph.for_editing()
    place = {node: n for n, node in enumerate(edited.graph.nodes)}
    for node in edited.calls:
        if is_collective(node.target) and not is_wait(node.target):
            for result in _results(edited, node):
                _wait_once(edited, result, place)
    order = _Order(edited)
    if not _put(edited, order.nodes()) and graph.text(origins=False) == edited.text(origins=False):
        return graph
    return edited


def _results(graph: PrimGraph, node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes of its results; those of a list are taken out of it, each once."""
    specs = node.meta["spec"]
    if not isinstance(specs, (tuple, list)):
        return [node]
    found: dict[int, torch.fx.Node] = {}
    for user in list(node.users):
        if user.target is operator.getitem:
            place: Any = user.args[1]
            first = found.setdefault(place, user)
            if first is not user:
                user.replace_all_uses_with(first)
                graph.graph.erase_node(user)
    with graph.graph.inserting_after(node):
        for place, spec in enumerate(specs):
            if place not in found:
                found[place] = _like(graph, node, operator.getitem, (node, place), spec)
    return [found[place] for place in range(len(specs))]


def _like(graph: PrimGraph, node: torch.fx.Node, target: Any, args: Any, spec: Any) -> torch.fx.Node:
    made = add_node(graph.graph, "call_function", target, args)
    made.meta.update(spec=spec, origin=node.meta.get("origin"))
    return made


def _wait_once(graph: PrimGraph, result: torch.fx.Node, place: Mapping[torch.fx.Node, int]) -> None:
    """Whoever reads the result reads what the first wait for it gives; one is added where there is none, or it comes after a reader. place:
    of the nodes in their order, before any was added."""
    users = list(result.users)
    first = min(users, key=place.__getitem__, default=None)
    if first is None or not is_wait(first.target):
        with graph.graph.inserting_after(result):
            first = _like(graph, result, wait_tensor(), (result,), result.meta["spec"])
    for user in users:
        if user is not first:
            user.replace_input_with(result, first)
    for user in list(first.users):
        if is_wait(user.target):
            user.replace_all_uses_with(first)
            graph.graph.erase_node(user)


class _Order:
    """A walk over the nodes in their order: collectives that are ready go ahead, waits and views of what they give stay behind."""

    def __init__(self, graph: PrimGraph) -> None:
        self.graph = graph
        self.done: set[torch.fx.Node] = set(graph.placeholders)
        self.behind: dict[torch.fx.Node, None] = {}  # waits, and views of what they give
        self.in_flight: dict[torch.fx.Node, float] = {}  # wait that is behind -> bytes

    def nodes(self) -> Iterator[torch.fx.Node]:
        """All calls."""
        calls = self.graph.calls
        ahead = iter([node for node in calls if not is_pure(node)])
        following = next(ahead, None)
        for node in calls:
            if node in self.done or node in self.behind:
                continue
            if is_wait(node.target) and not self._is_of_input(node):
                self._leave_behind(node)
            elif _is_view(node) and any(a in self.behind for a in node.all_input_nodes):
                self.behind[node] = None
            else:
                if is_collective(node.target):
                    yield from self._make_room(self._bytes(node))
                yield from self._with_inputs(node)
            while following is not None:
                if following not in self.done and following not in self.behind:
                    if self._is_begun(following):
                        self._leave_behind(following)
                    elif (before := self._before(following)) is not None:
                        yield from map(self._finish, (*before, following))
                    else:
                        break
                following = next(ahead, None)
        for node in [*self.behind]:
            yield from self._with_inputs(node)

    def _is_begun(self, node: torch.fx.Node) -> bool:
        """Whether it waits for a collective that is on its way."""
        return is_wait(node.target) and not self._is_of_input(node) and node.all_input_nodes[0] in self.done

    def _leave_behind(self, wait: torch.fx.Node) -> None:
        self.behind[wait] = None
        self.in_flight[wait] = self._bytes(wait.all_input_nodes[0])

    def _before(self, node: torch.fx.Node) -> list[torch.fx.Node] | None:
        """What is yet to be done for a collective that starts now: views and conversions of what is there. None where it may not start."""
        if not is_collective(node.target) or is_wait(node.target):
            return None
        if self.in_flight and sum(self.in_flight.values()) + self._bytes(node) > MOST_IN_FLIGHT:
            return None
        found: dict[torch.fx.Node, None] = {}
        for operand in node.all_input_nodes:
            chain: list[torch.fx.Node] = []
            while operand not in self.done and operand not in found:
                if operand in self.behind or not (_is_view(operand) or _is_conversion(operand)):
                    return None
                chain.append(operand)
                (operand,) = operand.all_input_nodes
            found.update(dict.fromkeys(reversed(chain)))
        return [*found]

    def _make_room(self, size: float) -> Iterator[torch.fx.Node]:
        while self.in_flight and sum(self.in_flight.values()) + size > MOST_IN_FLIGHT:
            yield from self._with_inputs(next(iter(self.in_flight)))

    def _with_inputs(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        """The node after what it reads of what stayed behind."""
        if node in self.done:
            return
        for a in node.all_input_nodes:
            if a in self.behind:
                yield from self._with_inputs(a)
        yield self._finish(node)

    def _finish(self, node: torch.fx.Node) -> torch.fx.Node:
        self.behind.pop(node, None)
        self.in_flight.pop(node, None)
        self.done.add(node)
        return node

    def _is_of_input(self, wait: torch.fx.Node) -> bool:
        return wait.all_input_nodes[0].op == "placeholder"

    def _bytes(self, made: torch.fx.Node) -> float:
        """What the collective reads that a result is of, or what it gives, which may be more; as much as is allowed, where that is not known."""
        made = made.all_input_nodes[0] if made.target is operator.getitem else made
        return max(_size_of(a.meta["spec"] for a in made.all_input_nodes), _size_of([made.meta["spec"]]))


def _size_of(specs: Iterable[Any]) -> float:
    count: float = 0
    for spec in specs:
        if isinstance(spec, (tuple, list)):
            count += _size_of(spec)
            continue
        size = math.prod(spec.sizes)
        if not isinstance(size, int):
            return MOST_IN_FLIGHT
        count += size * spec.dtype.itemsize
    return count


def _is_view(node: torch.fx.Node) -> bool:
    return node.target is operator.getitem or isinstance(node.target, Op) and node.target.kind is Kind.VIEW


def _is_conversion(node: torch.fx.Node) -> bool:
    return isinstance(node.target, Op) and node.target.name == "convert"


def _put(graph: PrimGraph, nodes: Iterator[torch.fx.Node]) -> bool:
    """Whether the graph's calls changed their order for this one."""
    before, after = list(graph.calls), list(nodes)
    if before == after:
        return False
    last = graph.placeholders[-1] if graph.placeholders else None
    for node in after:
        if last is None:
            before[0].prepend(node)
        else:
            last.append(node)
        last = node
    return True
