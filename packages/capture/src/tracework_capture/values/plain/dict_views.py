"""Views of mappings: keys(), values() and items()."""

from __future__ import annotations

from ..protocol.constant import COMPARE_FUNCTIONS, ConstantValue
from ..protocol.value import Value
from .iterators import builtins_own
from .sequence import TupleValue

VIEW_TYPES = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


class DictView(Value):
    """keys(), values() or items() of a dict; live."""

    def __init__(self, mapping, kind):
        super().__init__(None)
        self.mapping = mapping
        self.kind = kind

    def python_type(self):
        return VIEW_TYPES[self.kind]

    def unpack(self, frame):
        if self.kind == "keys":
            return self.mapping.all_keys(frame)
        if self.kind == "values":
            return self.mapping.all_values(frame)
        return [TupleValue(pair) for pair in self.mapping.all_items(frame)]

    def iterate(self, frame):
        return self.mapping.iterator(frame, self.kind)

    def truth(self, frame):
        return self.mapping.truth(frame)

    def length(self, frame):
        return self.mapping.length(frame)

    def contains(self, frame, item):
        from ..protocol.operators import equal

        if self.kind == "keys":
            return self.mapping.contains(frame, item)
        if self.kind == "items" and isinstance(item, TupleValue):  # the key is looked up, and only its value compared
            pair = item.all_items(frame)
            if len(pair) != 2 or not self.mapping.contains(frame, pair[0]).constant():
                return ConstantValue(False)
            return ConstantValue(equal(frame, self.mapping.getitem(frame, pair[0]), pair[1]))
        return ConstantValue(any(equal(frame, i, item) for i in self.unpack(frame)))

    def getattr(self, frame, name):
        from ..protocol.binding import attribute_of_builtin

        return attribute_of_builtin(frame, self, name)

    def call_method(self, frame, name, args, kwargs):
        from ..protocol.operators import call_dunder
        from .sets import METHODS as SET_METHODS
        from .sets import SetValue

        if self.kind != "values" and name in SET_METHODS:
            return SET_METHODS[name](frame, SetValue(frame, self.unpack(frame)), *args, **kwargs)
        return call_dunder(frame, self, name, args, kwargs)

    def as_set(self, frame):
        """The set with the same members."""
        from .sets import SetValue

        return SetValue(frame, self.unpack(frame))

    def binary(self, frame, op, other, reverse=False):
        from .sets import intersection_with_view, with_view

        if self.kind == "values" or op not in ("|", "&", "-", "^"):
            return None
        if op == "&":
            return intersection_with_view(frame, self, other)
        return with_view(frame, op, *((other, self) if reverse else (self, other)))

    def compare(self, frame, op, other):
        """As sets, by looking up: values need no hash."""
        from .sets import SetValue

        is_set = isinstance(other, SetValue) or isinstance(other, DictView) and other.kind != "values"
        if self.kind == "values" or not is_set:
            return None
        fits = COMPARE_FUNCTIONS[{"!=": "=="}.get(op, op)]
        same = fits(self.length(frame).constant(), other.length(frame).constant())
        small, large = (other, self) if op in (">", ">=") else (self, other)
        members = list(small.members.values()) if isinstance(small, SetValue) else small.unpack(frame) if same else ()
        same = same and all(large.contains(frame, member).constant() for member in members)
        return ConstantValue(same != (op == "!="))

    def same_object(self, other):
        return self is other

    def reload(self, emit):
        return builtins_own(emit, self.mapping, self.kind)
