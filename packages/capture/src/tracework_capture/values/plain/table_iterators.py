"""Iterators over dicts and sets, which notice when keys or members come or go."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NoReturn

from ...errors import BreakGraph
from ..protocol.value import EXISTING, Emitter, Frame, Value
from .iterators import IteratorValue, advanced, builtins_own
from .sequence import TupleValue

if TYPE_CHECKING:
    from .mapping import DictValue
    from .sets import SetValue


class DictIterator(IteratorValue):
    """Over the keys, values or items of a dict; keys that come or go meanwhile are an error, values are read when they are due."""

    KINDS: dict[str, type] = {"keys": type(iter({})), "values": type(iter({}.values())), "items": type(iter({}.items()))}

    def __init__(self, mapping: DictValue, what: str, made_at: int) -> None:
        super().__init__(None)
        self.mapping, self.what, self.created_at = mapping, what, made_at
        self.kind = self.KINDS[what]
        self.order = list(mapping.entries)
        self.structure: int | None = mapping.structure
        self.position: int | None = 0

    def next_value(self, frame: Frame) -> Value | None:
        if self.position is None:
            return None
        if self.mapping.structure != self.structure:
            return self.changed(frame)
        if self.position == len(self.order):
            self.position = None
            return None
        hashed = self.order[self.position]
        self.position += 1
        mapping = self.mapping
        if self.what == "keys":
            return mapping.key_value(frame, hashed)
        found = mapping.item(frame, hashed)
        return found if self.what == "values" else TupleValue([mapping.key_value(frame, hashed), found])

    def changed(self, frame: Frame) -> NoReturn:
        """Keys came or went."""
        ordered = issubclass(self.mapping.cls, collections.OrderedDict)
        if len(self.mapping.entries) == len(self.order) and not ordered:
            frame.break_graph("iterator_unsupported", "keys of a dict were exchanged during iteration")
        self.structure = None  # the error comes again
        what = "OrderedDict mutated" if ordered else "dictionary changed size"
        frame.raise_new(RuntimeError, f"{what} during iteration")

    def reload(self, emit: Emitter) -> str:
        if self.position is None:
            return f"{emit.const(iter)}(())"
        rebuilds(self, self.mapping, "a dict whose keys")
        return at_its_place(emit, self, f"{emit.const(iter)}({builtins_own(emit, self.mapping, self.what)})")


class SetIterator(IteratorValue):
    """Over a set, in the order that Python has it in."""

    kind: type = type(iter(set()))

    def __init__(self, owner: SetValue, items: list[Value], made_at: int) -> None:
        super().__init__(None)
        self.owner, self.items, self.created_at = owner, items, made_at
        self.structure: int | None = owner.structure
        self.position: int | None = 0

    def next_value(self, frame: Frame) -> Value | None:
        if self.position is None:
            return None
        if self.owner.structure != self.structure:
            if len(self.owner.members) == len(self.items):
                return frame.break_graph("iterator_unsupported", "members of a set were exchanged during iteration")
            self.structure = None
            return frame.raise_new(RuntimeError, "Set changed size during iteration")
        if self.position == len(self.items):
            self.position = None
            return None
        self.position += 1
        return self.items[self.position - 1]

    def reload(self, emit: Emitter) -> str:
        if self.position is None:
            return f"{emit.const(iter)}({emit.const(frozenset)}())"
        rebuilds(self, self.owner, "a set whose members")
        return at_its_place(emit, self, builtins_own(emit, self.owner, "__iter__"))


def rebuilds(iterator: DictIterator | SetIterator, owner: DictValue | SetValue, what: str) -> None:
    """Breaks where an iterator over a dict or a set cannot be made anew: it is made from an existing one as that was, and from a new one as
    that is."""
    if iterator.structure != (0 if owner.mutability is EXISTING else owner.structure):
        stop = BreakGraph("cannot_rebuild", f"an iterator over {what} came or went")
        stop.created_at = iterator.created_at
        raise stop


def at_its_place(emit: Emitter, iterator: DictIterator | SetIterator, text: str) -> str:
    """An iterator made by `text` that has given as many items as this one."""
    made = emit.temp(text)
    if iterator.position:
        emit.line(advanced(emit, made, iterator.position))
    return made
