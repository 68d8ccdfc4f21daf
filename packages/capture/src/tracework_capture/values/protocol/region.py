"""A piece of the program that is traced by itself: a backward, a hook, an arm, a round of a loop, a function under a transform. It is traced in
place, as all else, so guards, side effects and graph breaks need no second mechanism; afterwards its nodes become a graph of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from ...graph.regions import Outlined, outline
from ...graph.wrapped import plain_parts
from .memory import forget_nodes
from .value import Value


class Region:
    """The piece that starts here, and the state before: objects that were there by the log of side effects, those that the traced program made
    and that the code reaches from what it is `given` by what is in them, tensors by the writes to their memory."""

    def __init__(self, frame: Any, *given: Any) -> None:
        self.frame = frame
        self.last = next(iter(reversed(frame.graph.graph.nodes)), None)
        self.changes = frame.mutations.changes
        self.constructed = constructed_in([*given, *frame.mutations.keep])
        self.versions = {storage: storage.version for storage, _ in self._memory()}

    def nodes(self) -> list[fx.Node]:
        """The nodes recorded since, without placeholders and arithmetic on sizes."""
        found: list[fx.Node] = []
        for node in reversed(self.frame.graph.graph.nodes):
            if node is self.last:
                break
            if node.op != "placeholder" and not isinstance(node.meta.get("example_value"), torch.SymInt):
                found.append(node)
        return found[::-1]

    def outline(self, outputs: Sequence[fx.Node | None], name: str, stand_ins: Sequence[fx.Node] = ()) -> Outlined:
        """The nodes as a graph of its own; the values of these cannot be used outside of it. `stand_ins`: nodes of what is not there yet, which are
        erased. Raises BreakGraph."""
        nodes = self.nodes()
        made = outline(self.frame.graph, nodes, outputs, name)
        forget_nodes(self.frame, {*nodes, *stand_ins})
        for node in stand_ins:
            self.frame.graph.graph.erase_node(node)
        return made

    def _memory(self) -> Any:
        graph = self.frame.graph
        values = (*graph.tensor_values.values(), *graph.wrapper_values.values())
        return [(part.storage, value.node) for value in values for part in plain_parts(value.example)]

    def what_changed(self) -> str:
        """Words for the break, or an empty text."""
        if self.changes_objects():
            return "changes Python objects"
        if self.written():
            return "writes to tensors that it did not make"
        return ""

    def changes_objects(self) -> bool:
        """Whether a Python object was changed."""
        if self.frame.mutations.changes != self.changes:
            return True
        return any(is_changed(value, held) for value, held in self.constructed)

    def written(self) -> set[Any]:
        """The memory that was there before, or is that of an input first read since, and was written to."""
        made = {storage for storage, node in self._memory() if node is not None and node.op == "placeholder"}
        return {storage for storage in {*self.versions, *made} if storage.version != self.versions.get(storage, 0)}


def is_changed(value: Any, held: list[Any]) -> bool:
    """Whether something else is in a value than what was; what nobody had read may have become a value."""
    now = list(value.held())
    return len(now) != len(held) or any(new is not old and isinstance(old, Value) for new, old in zip(now, held))


def constructed_in(values: Iterable[Any]) -> list[tuple[Any, list[Any]]]:
    """The objects among these, and in them, that the traced program made; each with what is in it."""
    found, seen, open_ = [], set(), list(values)
    while open_:
        value = open_.pop()
        if id(value) in seen or not isinstance(value, Value):  # nobody has read it yet
            continue
        seen.add(id(value))
        held = list(value.held())
        if value.source is None:
            found.append((value, held))
        open_ += held
    return found
