"""types.MappingProxyType: a read-only view of a mapping, live."""

from __future__ import annotations

import collections
import gc
import types

from ...sources import Const
from ..protocol.constant import plain
from ..protocol.value import Value
from ..protocol.wraps import wraps

_METHODS = frozenset(
    {"get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__", "__reversed__"}
)


class ProxyValue(Value):
    """A view of `mapping`."""

    def __init__(self, mapping, source=None):
        super().__init__(source)
        self.mapping = mapping

    def python_type(self):
        return types.MappingProxyType

    def truth(self, frame):
        return self.mapping.truth(frame)

    def length(self, frame):
        return self.mapping.length(frame)

    def unpack(self, frame):
        return self.mapping.unpack(frame)

    def iterate(self, frame):
        return self.mapping.iterate(frame)

    def contains(self, frame, item):
        return self.mapping.contains(frame, item)

    def getitem(self, frame, key):
        return self.mapping.getitem(frame, key)

    def setitem(self, frame, key, value):
        return frame.raise_new(TypeError, "'mappingproxy' object does not support item assignment")

    def delitem(self, frame, key):
        return frame.raise_new(TypeError, "'mappingproxy' object does not support item deletion")

    def getattr(self, frame, name):
        from ..protocol.binding import attribute_of_builtin

        return attribute_of_builtin(frame, self, name)

    def call_method(self, frame, name, args, kwargs):
        if name in _METHODS:
            return self.mapping.call_method(frame, name, args, kwargs)
        return frame.break_graph("call_unknown", f"mappingproxy.{name}")

    def binary(self, frame, op, other, reverse=False):
        from ..protocol.operators import binary

        if op == "|=":
            return frame.raise_new(TypeError, "'|=' is not supported by mappingproxy; use '|' instead")
        if op != "|":
            return None
        other = other.mapping if isinstance(other, ProxyValue) else other
        return binary(frame, op, *((other, self.mapping) if reverse else (self.mapping, other)))

    def compare(self, frame, op, other):
        from ..protocol.operators import compare

        return compare(frame, op, self.mapping, other)

    def same_object(self, other):
        return self is other

    def hash_key(self, frame):
        return frame.break_graph("unhashable_value", self.describe())

    def as_plain(self):
        return types.MappingProxyType(plain(self.mapping))

    def reload(self, emit):
        return f"{emit.const(types.MappingProxyType)}({emit.load(self.mapping)})"


@wraps(types.MappingProxyType)
def wrap_proxy(frame, obj, source):
    """An existing view (of a class, of a signature's parameters, or of a dict that may change)."""
    frame.guard("IDENTITY", source, obj)
    mapping = gc.get_referents(obj)[0]
    if type(mapping) not in (dict, collections.OrderedDict):  # the latter is what a signature's parameters are
        frame.break_graph("attribute_unknown", f"a mappingproxy of a {type(mapping).__name__}")
    return ProxyValue(frame.wrap(mapping, Const(mapping, "mapping")), source)


def proxy_row(frame, args, kwargs):
    """types.MappingProxyType(mapping)"""
    from .mapping import DictValue

    if not isinstance(args[0], DictValue):
        return frame.break_graph("builtin_unsupported", f"a mappingproxy of {args[0].describe()}")
    return ProxyValue(args[0])
