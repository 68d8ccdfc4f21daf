"""threading.local itself: attributes of the calling thread, which each call has anew."""

from __future__ import annotations

import threading
from typing import Any

from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...sources import Attr
from ..protocol.value import Frame, Value
from .instance import ObjectValue


class ThreadLocalValue(ObjectValue):
    """An existing one. Its `__dict__` is that of the thread that asks, so each attribute is read by its name."""

    def instance_dict(self) -> dict[str, Any] | None:
        return None

    def refuse_methods(self, frame: Frame, name: str) -> None:
        """Breaks for what is no attribute of the program's."""
        if name == "__dict__" or lookup_class(threading.local, name)[0] is not NO_ATTRIBUTE:
            frame.break_graph("attribute_unknown", f"{name} of {self.describe()}")

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__class__":
            return super().plain_getattr(frame, name)
        self.refuse_methods(frame, name)
        if name in self.fields:
            return self.fields[name]
        try:
            found = getattr(self.obj, name)
        except AttributeError:
            frame.guard("LACKS_ATTR", self.source, name)
            self.no_attribute(frame, name)
        return frame.wrap(found, Attr(self.source, name))

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        self.refuse_methods(frame, name)
        self.set_field(frame, name, value)

    def delattr(self, frame: Frame, name: str) -> None:
        frame.break_graph("side_effect_unknown", f"del of {name} of {self.describe()}")
