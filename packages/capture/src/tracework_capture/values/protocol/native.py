"""Objects of classes that C defines: containers and iterators."""

from __future__ import annotations

from .arguments import call_row
from .binding import attribute_of_builtin
from .calls import method_handler
from .operators import call_dunder
from .value import Frame, Value


class NativeValue(Value):
    """An object of a class of C's. Its methods have rows in CALLS, or stand for operations that values have."""

    is_unique = True
    rows: tuple[type, ...] = ()
    """Whose rows its methods have."""

    def getattr(self, frame: Frame, name: str) -> Value:
        return attribute_of_builtin(frame, self, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        for owner in self.rows:
            handler = method_handler(owner, name)
            if handler is not None:
                return call_row(frame, self, name, handler, args, kwargs)
        return call_dunder(frame, self, name, args, kwargs)
