"""What is known of a function that exists and is not traced into: itself."""

from __future__ import annotations

from .value import Value


class KnownFunction(Value):
    """A function as an object: subclasses say what a call does."""

    def __init__(self, fn, source=None):
        super().__init__(source)
        self.fn = fn

    def python_type(self):
        return type(self.fn)

    def real(self):
        return self.fn

    def as_plain(self):
        return self.fn

    def as_graph_arg(self, frame):
        return self.fn

    def truth(self, frame):
        return True

    def hash_key(self, frame):
        return self.fn

    def same_object(self, other):
        try:
            return other.real() is self.fn
        except LookupError:
            return False
