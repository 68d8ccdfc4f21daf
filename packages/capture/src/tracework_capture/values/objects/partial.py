"""functools.partial: an object with attributes of its own whose call is one of its function, with more arguments."""

from __future__ import annotations

import functools
import gc
from typing import Any

from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...sources import InstanceDict, Source
from ..plain.mapping import dict_of
from ..plain.sequence import TupleValue
from ..protocol.binding import is_callable
from ..protocol.value import Emitter, Frame, Value
from .instance import ObjectValue

PARTS = ("func", "args", "keywords")
"""What C shows of a partial, read-only; the dict of keywords itself can be changed."""


class PartialValue(ObjectValue):
    """A partial with the function, the tuple of positional arguments and the dict of those by name that it calls with."""

    def __init__(self, parts: tuple[Value, Any, Any], obj: Any = None, source: Source | None = None) -> None:
        super().__init__(functools.partial, obj, source)
        self.parts = parts  # the function, a TupleValue and a DictValue

    def held(self) -> Any:
        return *self.parts, *super().held()

    def is_flat(self) -> bool:
        """Whether a partial of this one calls the function itself: C does so where it never had attributes."""
        return not self.fields and (self.obj is None or not self.has_dict())

    def has_dict(self) -> bool:
        """Whether there is a dict of attributes of an existing one beside that of the keywords: C makes it with the first."""
        return sum(type(held) is dict for held in gc.get_referents(self.obj)) > 1

    def instance_dict(self) -> dict[str, Any] | None:
        """The dict of attributes of an existing one; asking for it would make one, by which C tells partials apart."""
        return super().instance_dict() if self.obj is not None and self.has_dict() else None

    def has_hidden_dict(self) -> bool:
        return False

    def field(self, frame: Frame, name: str) -> Value | None:
        if self.obj is not None and name not in self.fields and not self.has_dict():
            if lookup_class(functools.partial, name)[0] is NO_ATTRIBUTE:
                frame.guard("LACKS_ATTR", self.source, name)
            else:
                frame.guard("DICT_LACKS", InstanceDict(self.source), name)
        return super().field(frame, name)

    def native_attribute(self, frame: Frame, static: Any, name: str) -> Value:
        if name in PARTS:
            return self.parts[PARTS.index(name)]
        return super().native_attribute(frame, static, name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        function, positional, keywords = self.parts
        named = {key.constant(): value for key, value in keywords.all_items(frame)}
        return function.call(frame, [*positional.all_items(frame), *args], {**named, **kwargs})

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(functools.partial)}({emit.load(self.parts[0])})"

    def fill(self, emit: Emitter, name: str) -> None:
        parts = ", ".join(map(emit.load, self.parts))
        emit.line(f"{name}.__setstate__(({parts}, None))")  # keeps the dict itself
        super().fill(emit, name)


def partial_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """functools.partial(function, *args, **kwargs)"""
    if not args:
        return frame.raise_new(TypeError, "type 'partial' takes at least one argument")
    function, *positional = args
    if isinstance(function, PartialValue) and function.is_flat():
        function, given, keywords = function.parts
        positional = [*given.all_items(frame), *positional]
        kwargs = {**{key.constant(): value for key, value in keywords.all_items(frame)}, **kwargs}
    elif not is_callable(function):
        return frame.raise_new(TypeError, "the first argument must be callable")
    named = dict_of(frame, [(frame.constant(name), value) for name, value in kwargs.items()])
    return PartialValue((function, TupleValue(positional), named))


def partial_call(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """partial.__call__(*args, **kwargs)"""
    return args[0].call(frame, args[1:], kwargs)
