"""Whether a traced piece of code that will run at another time, a backward or a hook, left everything around it as it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .value import Value

__all__ = ["Unchanged"]


class Unchanged:
    """The state before: objects that were there by the log of side effects, those that the traced program made and that the code reaches from
    what it is `given` by what is in them, tensors by the writes to their memory."""

    def __init__(self, frame: Any, *given: Any) -> None:
        self.frame = frame
        self.changes = frame.mutations.changes
        self.constructed = constructed_in([*given, *frame.mutations.keep])
        self.versions = {storage: storage.version for storage, _ in self._memory()}

    def _memory(self) -> Any:
        values = self.frame.graph.tensor_values.values()
        return [(value.example.storage, value.node) for value in values]

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
