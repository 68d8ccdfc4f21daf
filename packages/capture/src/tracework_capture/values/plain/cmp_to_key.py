"""functools.cmp_to_key: keys that a function of the program compares."""

from __future__ import annotations

import functools

from ..protocol.calls import call
from ..protocol.constant import ConstantValue
from ..protocol.operators import compare
from ..protocol.value import NEW, Emitter, Frame, Value

KEY_WRAPPER = type(functools.cmp_to_key(max))
"""The class of what cmp_to_key gives, and of the keys that a call of it gives."""


class ComparedKey(Value):
    """What compares by `function(obj, other.obj)`; `obj` is None in what cmp_to_key itself gives."""

    cls = KEY_WRAPPER
    is_unique = True
    mutability = NEW

    def __init__(self, function: Value, obj: Value | None = None) -> None:
        super().__init__(None)
        self.function = function
        self.obj = obj

    def getattr(self, frame: Frame, name: str) -> Value:
        return self.obj if name == "obj" and self.obj is not None else super().getattr(frame, name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = [*args, *(kwargs[name] for name in kwargs if name == "obj")]
        if len(given) != 1 or len(args) + len(kwargs) != 1:
            return frame.break_graph("call_unknown", "a key of functools.cmp_to_key with these arguments")
        return ComparedKey(self.function, given[0])

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if not isinstance(other, ComparedKey):
            return frame.raise_new(TypeError, "other argument must be K instance")
        if self.obj is None or other.obj is None:
            return frame.raise_new(AttributeError, "object")
        return compare(frame, op, self.function.call(frame, [self.obj, other.obj], {}), ConstantValue(0))

    def reload(self, emit: Emitter) -> str:
        made = f"{emit.const(functools.cmp_to_key)}({emit.load(self.function)})"
        return made if self.obj is None else f"{made}({emit.load(self.obj)})"


@call(functools.cmp_to_key)
def cmp_to_key(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ComparedKey(args[0] if args else kwargs["mycmp"])
