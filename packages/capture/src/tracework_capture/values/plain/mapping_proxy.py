"""types.MappingProxyType: a read-only view of a mapping, live."""

from __future__ import annotations

import collections
import gc
import types
from typing import Any

from ...sources import Const, Source
from ..protocol.constant import plain
from ..protocol.native import NativeValue
from ..protocol.operators import binary, compare
from ..protocol.value import Emitter, Frame, Value
from ..protocol.wraps import wraps
from .mapping import DictValue, dict_of

_METHODS = frozenset(
    {"get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__", "__reversed__"}
)


class ProxyValue(NativeValue):
    """A view of `mapping`."""

    cls = types.MappingProxyType

    def __init__(self, mapping: Value, source: Any = None) -> None:
        super().__init__(source)
        self.mapping = mapping

    def truth(self, frame: Frame) -> bool:
        return self.mapping.truth(frame)

    def length(self, frame: Frame) -> Value:
        return self.mapping.length(frame)

    def unpack(self, frame: Frame) -> list[Value]:
        return self.mapping.unpack(frame)

    def iterate(self, frame: Frame) -> Value:
        return self.mapping.iterate(frame)

    def contains(self, frame: Frame, item: Value) -> Value:
        return self.mapping.contains(frame, item)

    def getitem(self, frame: Frame, key: Value) -> Value:
        return self.mapping.getitem(frame, key)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        frame.raise_new(TypeError, "'mappingproxy' object does not support item assignment")

    def delitem(self, frame: Frame, key: Value) -> None:
        frame.raise_new(TypeError, "'mappingproxy' object does not support item deletion")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in _METHODS:
            return self.mapping.call_method(frame, name, args, kwargs)
        return frame.break_graph("call_unknown", f"mappingproxy.{name}")

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if op == "|=":
            return frame.raise_new(TypeError, "'|=' is not supported by mappingproxy; use '|' instead")
        if op != "|":
            return None
        other = other.mapping if isinstance(other, ProxyValue) else other
        return binary(frame, op, *((other, self.mapping) if reverse else (self.mapping, other)))

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        return compare(frame, op, self.mapping, other)

    def hash_key(self, frame: Frame) -> Any:
        return frame.break_graph("unhashable_value", self.describe())

    def as_plain(self) -> Any:
        return types.MappingProxyType(plain(self.mapping))

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(types.MappingProxyType)}({emit.load(self.mapping)})"


@wraps(types.MappingProxyType)
def wrap_proxy(frame: Frame, obj: types.MappingProxyType[Any, Any], source: Source) -> ProxyValue:
    """An existing view (of a class, of a signature's parameters, or of a dict that may change)."""
    frame.guard("IDENTITY", source, obj)
    mapping = gc.get_referents(obj)[0]
    if type(mapping) not in (dict, collections.OrderedDict):  # the latter is what a signature's parameters are
        frame.break_graph("attribute_unknown", f"a mappingproxy of a {type(mapping).__name__}")
    if type(mapping) is collections.OrderedDict and all(type(key) is str for key in mapping):  # which nobody changes
        parameters = dict_of(frame, [(key, frame.constant(parameter)) for key, parameter in mapping.items()])
        parameters.cls = collections.OrderedDict
        return ProxyValue(parameters, source)
    return ProxyValue(frame.wrap(mapping, Const(mapping, "mapping")), source)


def proxy_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """types.MappingProxyType(mapping)"""
    if not isinstance(args[0], DictValue):
        return frame.break_graph("builtin_unsupported", f"a mappingproxy of {args[0].describe()}")
    return ProxyValue(args[0])
