"""Whether a traced piece of code that will run at another time, a backward or a hook, left everything around it as it was."""

from __future__ import annotations

from typing import Any

__all__ = ["Unchanged"]


class Unchanged:
    """The state before: Python objects by the log of side effects, tensors by the writes to their memory."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.changes = frame.mutations.changes
        self.versions = {storage: storage.version for storage, _ in self._memory()}

    def _memory(self) -> Any:
        values = getattr(self.frame.graph, "tensor_values", {}).values()
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
        return bool(self.frame.mutations.changes != self.changes)

    def written(self) -> set[Any]:
        """The memory that was there before, or is that of an input first read since, and was written to."""
        made = {storage for storage, node in self._memory() if node is not None and node.op == "placeholder"}
        return {storage for storage in {*self.versions, *made} if storage.version != self.versions.get(storage, 0)}
