"""Iterators over dicts and sets, which notice when keys or members come or go."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import BreakGraph
from ..protocol.value import EXISTING, Emitter, Frame, Value
from .iterators import IteratorValue, advanced, builtins_own
from .sequence import TupleValue

if TYPE_CHECKING:
    from .mapping import DictValue
    from .sets import SetValue


class TableIterator(IteratorValue):
    """Over `order`, what a dict or a set had when the iterator was made, in Python's order."""

    entries: str
    """What comes or goes, for messages."""
    changed: str
    """What the error says when it does."""
    empty: object
    """What an iterator that has ended is made of."""

    def __init__(self, owner: Any, order: list[Any], created_at: int) -> None:
        super().__init__(None)
        self.owner, self.order, self.created_at = owner, order, created_at
        self.structure: int | None = owner.structure
        self.position: int | None = 0

    def next_value(self, frame: Frame) -> Value | None:
        if self.position is None:
            return None
        if self.owner.structure != self.structure:
            return self.fail(frame)
        if self.position == len(self.order):
            self.position = None
            return None
        self.position += 1
        return self.item(frame, self.order[self.position - 1])

    def item(self, frame: Frame, entry: Any) -> Value:
        """What is given for an entry of the order."""
        raise NotImplementedError

    def fail(self, frame: Frame) -> NoReturn:
        """Entries came or went; CPython notices where their number is another."""
        is_ordered = issubclass(self.owner.cls, collections.OrderedDict)
        if self.owner.length(frame).constant() == len(self.order) and not is_ordered:
            frame.break_graph("iterator_unsupported", f"{self.entries} were exchanged during iteration")
        self.structure = None  # the error comes again
        frame.raise_new(RuntimeError, f"{'OrderedDict mutated' if is_ordered else self.changed} during iteration")

    def made(self, emit: Emitter) -> str:
        """The expression of one that has given nothing yet."""
        return builtins_own(emit, self.owner, "__iter__")

    def reload(self, emit: Emitter) -> str:
        if self.position is None:
            return f"{emit.const(iter)}({emit.literal(self.empty)})"
        # made from an existing table it is as that was, and from a new one as that is
        if self.structure != (0 if self.owner.mutability is EXISTING else self.owner.structure):
            stop = BreakGraph("cannot_rebuild", f"an iterator over {self.entries} came or went")
            stop.created_at = self.created_at
            raise stop
        made = emit.temp(self.made(emit))
        if self.position:
            emit.line(advanced(emit, made, self.position))
        return made


class DictIterator(TableIterator):
    """Over the keys, values or items of a dict; values are read when they are due."""

    KINDS: dict[str, type] = {"keys": type(iter({})), "values": type(iter({}.values())), "items": type(iter({}.items()))}
    entries, changed, empty = "a dict whose keys", "dictionary changed size", ()
    owner: DictValue

    def __init__(self, mapping: DictValue, what: str, created_at: int) -> None:
        super().__init__(mapping, list(mapping.entries), created_at)
        self.what, self.kind = what, self.KINDS[what]

    def item(self, frame: Frame, entry: Any) -> Value:
        if self.what == "keys":
            return self.owner.key_value(frame, entry)
        found = self.owner.item(frame, entry)
        return found if self.what == "values" else TupleValue([self.owner.key_value(frame, entry), found])

    def made(self, emit: Emitter) -> str:
        return f"{emit.const(iter)}({builtins_own(emit, self.owner, self.what)})"


class SetIterator(TableIterator):
    """Over a set."""

    kind: type = type(iter(set()))
    entries, changed = "a set whose members", "Set changed size"
    empty: object = frozenset()
    owner: SetValue

    def item(self, frame: Frame, entry: Value) -> Value:
        return entry
