"""Whether a traced piece of code that will run at another time, a backward or a hook, left everything around it as it was."""

from __future__ import annotations

from typing import Any

__all__ = ["Unchanged"]


class Unchanged:
    """The state before: Python objects by the log of side effects, tensors by the writes to their memory."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.changes = frame.mutations.changes
        values = getattr(frame.graph, "tensor_values", {}).values()
        self.versions = [(storage, storage.version) for storage in {value.example.storage for value in values}]

    def what_changed(self) -> str:
        """Words for the break, or an empty text."""
        if self.frame.mutations.changes != self.changes:
            return "changes Python objects"
        if any(storage.version != version for storage, version in self.versions):
            return "writes to tensors that it did not make"
        return ""
