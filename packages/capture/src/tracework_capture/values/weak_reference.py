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
        obj = self.obj()
        if obj is not None and may_have_died(frame, obj):
            return frame.break_graph("value_not_known", f"{self.describe()} is asked for an object that may have died")
        return frame.wrap(obj, Referent(self.source))


def may_have_died(frame, obj):
    """Whether the traced program let go of an object that lives as long as that is not done: an argument that no local of the frame is
    any more, or what a variable held that functions share and that was written to."""
    root = frame.root
    while frame.parent is not None:
        frame = frame.parent
    value = root.memo.get(id(obj))
    if value is not None and all(v is not value for v in (*dict.values(frame.locals), *frame.stack)):
        if any(argument is obj for argument in root.arguments.values()):
            return True
    return any(cell.lets_go_of(obj) for cell in root.cells.values())
