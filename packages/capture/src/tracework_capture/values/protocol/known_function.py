"""What is known of a function that exists and is not traced into: itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...sources import Source
from .value import Frame, Value


class KnownFunction(Value):
    """A function as an object: subclasses say what a call does."""

    def __init__(self, fn: Callable[..., Any], source: Source | None = None) -> None:
        super().__init__(source)
        self.fn: Any = fn

    def python_type(self) -> type:
        return type(self.fn)

    def real(self) -> Any:
        return self.fn

    as_plain = real

    def as_graph_arg(self, frame: Frame) -> Any:
        return self.fn

    hash_key = as_graph_arg

    def same_object(self, other: Value) -> bool | None:
        try:
            return other.real() is self.fn
        except LookupError:
            return False
