"""weakref.ref: calling it gives the object that it refers to at that time."""

from __future__ import annotations

import weakref

from ..sources import Referent
from .value import Value


class WeakReference(Value):
    """An existing one. It is hashed and compared as what it refers to is, which is not known to be the same object at the next call."""

    def __init__(self, obj, source):
        super().__init__(source)
        self.obj = obj

    def python_type(self):
        return weakref.ref

    def truth(self, frame):
        return True

    def same_object(self, other):
        return self is other

    def hash_key(self, frame):
        return frame.break_graph("unhashable_value", self.describe())

    def compare(self, frame, op, other):
        return frame.break_graph("operation_unknown", f"comparison of {self.describe()}")

    def call(self, frame, args, kwargs):
        if args or kwargs:
            return frame.break_graph("call_unknown", f"{self.describe()} with arguments")
        return frame.wrap(self.obj(), Referent(self.source))
