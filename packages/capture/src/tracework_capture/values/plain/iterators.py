"""Iterators: lazy, one `next_value` at a time. Generators of Python functions are frames of the interpreter and live there;
what is here are the iterators of built-in containers and functions."""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ...errors import BreakGraph
from ...graph.raises import may_be
from ...guards.access import goes_over, item_ahead
from ...guards.classes import lookup_class
from ...sources import ItemAhead, IteratedList, Source
from ..protocol.binding import native_base
from ..protocol.calls import Handler
from ..protocol.constant import ConstantValue, force_plain, literal
from ..protocol.make import make
from ..protocol.native import NativeValue
from ..protocol.operators import equal
from ..protocol.value import EXISTING, Emitter, Frame, SymbolicRaise, Value

if TYPE_CHECKING:
    from .sequence import SequenceValue


class IteratorValue(NativeValue):
    """An iterator made while tracing."""

    kind: type = type(iter([]))
    pushed_at = -2  # the step of the captured frame that put it onto its stack, where that is known
    is_alone = False  # whether nothing but the loop that it was made for can see it
    in_loop = False  # whether the captured frame's own loop is going over it

    def python_type(self) -> type:
        return self.kind

    def iterate(self, frame: Frame) -> Value:
        return self

    def contains(self, frame: Frame, item: Value) -> Value:
        while (found := self.next_value(frame)) is not None:
            if equal(frame, found, item):
                return ConstantValue(True)
        return ConstantValue(False)

    def remaining(self) -> list[Value] | None:
        """The items left, when that is a finite list of values that exist already; else None."""
        return None

    def parts(self) -> Iterable[Value]:
        """The iterators that it asks."""
        return ()

    def rest(self, emit: Emitter) -> str | None:
        """Text of a tuple of the items left, when no part of the program can change which these are; else None."""
        return None

    def reload(self, emit: Emitter) -> str:
        items = self.remaining()
        if items is None:
            return super().reload(emit)
        return f"{emit.const(iter)}([{', '.join(emit.load(i) for i in items)}])"


class ContinuedIterator(IteratorValue):
    """Over the items that were left of a loop at a break in it: they came as a tuple. The rounds left are captured together when none
    of them breaks; otherwise each is captured by itself, so that they can share what is compiled."""

    kind = type(iter(()))
    is_alone = in_loop = True

    def __init__(self, items: tuple[Any, ...], source: Source) -> None:
        super().__init__(None)
        self.items, self.items_source = items, source
        self.sequence: IteratorValue | None = None

    def next_value(self, frame: Frame) -> Value | None:
        if not frame.plan.unrolls:
            return frame.break_graph("loop_goes_on", f"{len(self.items)} items are left")
        if self.sequence is None:
            frame.progress.unrolled = True
            items: Any = frame.wrap(self.items, self.items_source)
            self.sequence = items.iterate(frame)
        return self.sequence.next_value(frame)

    def rest(self, emit: Emitter) -> str | None:
        return emit.source(self.items_source) if self.sequence is None else self.sequence.rest(emit)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(iter)}({self.rest(emit)})"


class ExistingIterator(IteratorValue):
    """An iterator of plain Python, alive at a break in a loop: asking it for an item is left to plain Python."""

    def __init__(self, obj: Any, source: Source) -> None:
        super().__init__(source)
        self.kind = type(obj)
        self.code = getattr(obj, "gi_code", None)

    def next_value(self, frame: Frame) -> Value | None:
        return frame.break_graph("loop_goes_on", f"an existing {self.kind.__name__}")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.break_graph("loop_goes_on", f"{name} of an existing {self.kind.__name__}")


_SEQUENCES: tuple[Any, ...] = ([], (), "", "\xe9", b"", range(0), range(1 << 70))
OVER_SEQUENCES: frozenset[type] = frozenset((itertools.count, *(type(iter(made)) for made in _SEQUENCES)))


class HasLeft(NamedTuple):
    """the iterator has as many items left as before"""

    count: int  # type: ignore[assignment]  # guards show it, and nobody counts in one

    def __call__(self, iterator: Any) -> bool:
        return bool(iterator.__length_hint__() == self.count)


class StandsAt(NamedTuple):
    """the iterator stands at the same place as before"""

    place: int

    def __call__(self, iterator: Any) -> bool:
        return goes_over(iterator)[1] == self.place


class ExistingSequenceIterator(ExistingIterator):
    """An iterator of plain Python over a list, a tuple, a range or a text, or a count of ints. What it gives next is read where it stands, wherever that is,
    and how many items were taken is told to it after the graph. A list that the program changed is gone over here, from a place that is
    guarded. When a round of the loop over it breaks it is left to plain Python."""

    mutability = EXISTING

    def __init__(self, obj: Any, source: Source) -> None:
        super().__init__(obj, source)
        self.obj = obj
        self.taken = 0
        self.has_own_text = self.is_ended = False
        self.over_list: LiveSequenceIterator | None = None

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return IteratorValue.call_method(self, frame, name, args, kwargs)

    def next_value(self, frame: Frame) -> Value | None:
        if not frame.plan.unrolls:
            return super().next_value(frame)
        if not self.has_own_text:
            self.has_own_text = frame.progress.unrolled = True
            frame.mutations.keep.append(self)
        item = None if self.is_ended else self.following(frame)
        frame.mutations.effect(("iterator", id(self)), self.replay)
        return item

    def following(self, frame: Frame) -> Value | None:
        """The next item, None at the end."""
        if self.over_list is None:
            self.over_list = self.over_changed_list(frame)
        if self.over_list is not None:
            return self.over_list.next_value(frame)
        try:
            item = item_ahead(self.obj, self.taken)
        except LookupError:
            frame.guard("PREDICATE", self.source, HasLeft(self.taken))
            self.is_ended = True
            return None
        self.taken += 1
        return frame.wrap(item, ItemAhead(self.source, self.taken - 1))

    def over_changed_list(self, frame: Frame) -> LiveSequenceIterator | None:
        """What goes over the list on from here, where the program changed it; else None."""
        items, place = goes_over(self.obj)
        known: Any = frame.memory.memo.get(id(items))
        if known is None or type(items) is not list or known.is_unchanged():
            return None
        frame.wrap(items, IteratedList(self.source))
        frame.guard("PREDICATE", self.source, StandsAt(place))
        known.look(frame)
        made = LiveSequenceIterator(known)
        made.position = place + self.taken
        return made

    def replay(self, emit: Emitter) -> None:
        """Takes as many items off the iterator."""
        iterator = emit.source(self.source)
        if self.over_list is not None:
            self.over_list.move(emit, iterator)
        elif self.is_ended:
            emit.line(f"{emit.const(collections.deque)}({iterator}, 0)")
        else:
            emit.line(advanced(emit, iterator, self.taken))


class _Items:
    """What is gone over by its items alone."""

    def __getitem__(self, position: int) -> NoReturn:
        raise IndexError


ITEM_ITERATOR = type(iter(_Items()))


_TABLES: tuple[Any, ...] = ({}, {}.values(), {}.items(), set(), bytearray())
_REVERSIBLE: tuple[Any, ...] = ([], {}, range(0), collections.deque())
NATIVE_ITERATORS: frozenset[type] = frozenset(
    {
        types.GeneratorType,
        enumerate,
        zip,
        map,
        filter,
        reversed,
        *OVER_SEQUENCES,
        *(type(iter(made)) for made in _TABLES),
        *(type(reversed(made)) for made in _REVERSIBLE),
        type(iter(collections.deque())),
        type(iter(int, 1)),
        ITEM_ITERATOR,
        *(kind for kind in vars(itertools).values() if isinstance(kind, type) and hasattr(kind, "__next__")),
    }
)


def iterate_alone(frame: Frame, iterable: Value, is_new: bool = False) -> Any:
    """iter(iterable) for a loop or for another iterator; says of the iterator whether the program can get at it in another way.
    is_new: the iterable was made by the instruction before, and only the stack has it."""
    made: Any = iterable.iterate(frame)
    is_itself = made is iterable
    if is_itself:
        parts = made.parts() if is_new and isinstance(made, IteratorValue) else None
        made.is_alone = parts is not None and all(getattr(part, "is_alone", False) for part in parts)
    elif type(made) in (SequenceIterator, LiveSequenceIterator):
        made.is_alone = iterable.is_fixed()
    return made


class SequenceIterator(IteratorValue):
    """Over items that are known and will not change."""

    def __init__(self, items: list[Value]) -> None:
        super().__init__(None)
        self.items = items
        self.position = 0

    def next_value(self, frame: Frame) -> Value | None:
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def remaining(self) -> list[Value]:
        return self.items[self.position :]

    def rest(self, emit: Emitter) -> str | None:
        return f"({''.join(emit.load(item) + ', ' for item in self.remaining())})"


class ConstantIterator(IteratorValue):
    """Over a str, bytes or a range."""

    def __init__(self, items: str | bytes | range) -> None:
        super().__init__(None)
        self.items, self.position = items, 0
        self.kind = type(iter(items))

    def next_value(self, frame: Frame) -> Value | None:
        frame.progress.iterate(frame)
        try:
            item = self.items[self.position]
        except IndexError:
            return None
        self.position += 1
        return literal(frame, item)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(iter)}({emit.const(self.items[self.position :])})"


def builtins_own(emit: Emitter, container: Any, name: str) -> str:
    """Text of a call of a method of a built-in container, past what a subclass has in its place (and may have asked this one)."""
    made = container.owner or container
    base = native_base(made.cls)
    if base is object or lookup_class(made.cls, name)[1] is lookup_class(base, name)[1]:
        return f"{emit.load(made)}.{name}()"
    return f"{emit.const(base, base.__name__)}.{name}({emit.load(made)})"


PAST_THE_END = 1 << 62


class LiveSequenceIterator(IteratorValue):
    """Over a list, tuple or deque; sees items appended to a list meanwhile, a deque must stay as long as it was."""

    KINDS: dict[type, type] = {list: type(iter([])), tuple: type(iter(())), collections.deque: type(iter(collections.deque()))}

    def __init__(self, sequence: SequenceValue, made_at: int = -1) -> None:
        super().__init__(None)
        self.sequence, self.created_at = sequence, made_at
        self.position = 0
        self.state_at_start = sequence.state
        self.items_at_start = list(sequence.items) if sequence.kind == "deque" else None
        self.unchanged_at_start = sequence.kind != "deque" or sequence.is_unchanged()
        self.kind = self.KINDS.get(sequence.cls, type(iter([])))

    def next_value(self, frame: Frame) -> Value | None:
        if self.sequence.kind == "deque" and self.sequence.state != self.state_at_start:
            return frame.raise_new(RuntimeError, "deque mutated during iteration")
        if self.position >= len(self.sequence.items):
            self.position = PAST_THE_END
            return None
        self.position += 1
        return self.sequence.item(frame, self.position - 1)

    def rest(self, emit: Emitter) -> str | None:
        is_plain = self.sequence.cls is tuple and self.sequence.owner is None
        return f"{emit.load(self.sequence)}[{self.position}:]" if is_plain else None

    def reload(self, emit: Emitter) -> str:
        if self.items_at_start is not None:  # it is made from an existing deque as that was, and from a new one as that is
            exists = self.sequence.mutability is EXISTING
            if not (self.unchanged_at_start if exists else self.items_at_start == self.sequence.items):
                raise BreakGraph("cannot_rebuild", "an iterator over a deque that was changed")
        if self.position == 0:
            return builtins_own(emit, self.sequence, "__iter__")
        check_reach(self)
        made = emit.temp(builtins_own(emit, self.sequence, "__iter__"))
        self.move(emit, made)
        return made

    def move(self, emit: Emitter, made: str) -> None:
        """Makes an iterator that stands before the first item stand where this one does."""
        position = min(self.position, len(self.sequence.items))
        if self.position > position:  # at its end for good
            emit.line(f"{emit.const(collections.deque)}({made}, 0)")
        elif self.sequence.kind == "deque":
            emit.line(advanced(emit, made, position))
        else:
            emit.line(f"{made}.__setstate__({position})")


def check_reach(iterator: LiveSequenceIterator | ReverseIterator) -> None:
    """Breaks where an iterator over an existing list was made, when it stands where that has items only when changes are replayed."""
    sequence = iterator.sequence
    if sequence.kind == "list" and sequence.mutability is EXISTING and len(sequence.original) < iterator.position < PAST_THE_END:
        stop = BreakGraph("cannot_rebuild", "an iterator over a list that got items before")
        stop.created_at = iterator.created_at
        raise stop


class ReverseIterator(IteratorValue):
    """reversed(sequence); sees items that are exchanged meanwhile."""

    KINDS: dict[type, type] = {list: type(reversed([])), collections.deque: type(reversed(collections.deque()))}

    def __init__(self, sequence: SequenceValue, frame: Frame) -> None:
        super().__init__(None)
        self.sequence, self.created_at = sequence, frame.progress.step
        sequence.look(frame)
        self.kind = self.KINDS.get(sequence.cls, reversed)
        self.position = len(sequence.items)

    def next_value(self, frame: Frame) -> Value | None:
        if self.position == 0 or self.position > len(self.sequence.items):
            self.position = 0
            return None
        self.position -= 1
        return self.sequence.item(frame, self.position)

    def reload(self, emit: Emitter) -> str:
        if self.sequence.kind == "deque":
            return super().reload(emit)
        check_reach(self)
        if self.sequence.kind == "list":
            made = emit.temp(builtins_own(emit, self.sequence, "__reversed__"))
        else:
            made = emit.temp(f"{emit.const(reversed)}({emit.load(self.sequence)})")
        emit.line(f"{made}.__setstate__({self.position - 1})")
        return made


class ReversedObject(IteratorValue):
    """reversed(obj) of what has no __reversed__: asks for its length, and for its items by their numbers."""

    kind = reversed

    def __init__(self, sequence: Value, frame: Frame) -> None:
        super().__init__(None)
        self.sequence: Value | None = sequence
        self.position = force_plain(frame, sequence.length(frame))

    def next_value(self, frame: Frame) -> Value | None:
        if self.sequence is not None and self.position > 0:
            self.position -= 1
            try:
                return self.sequence.getitem(frame, ConstantValue(self.position))
            except SymbolicRaise as raised:
                if not issubclass(raised.value.python_type(), (IndexError, StopIteration)):
                    raise
        self.position, self.sequence = 0, None
        return None

    def call_length_hint(self, frame: Frame) -> None:
        if self.sequence is not None:
            self.sequence.length(frame)


def advanced(emit: Emitter, iterator: str, count: int) -> str:
    """Text of a statement that takes so many items off an iterator."""
    return f"{emit.const(collections.deque)}({emit.const(itertools.islice)}({iterator}, {count}), 0)"


class PartialBuiltin(Value):
    """A callable object of a built-in type (operator.itemgetter(...))."""

    def __init__(self, cls: type, handler: Handler, args: Sequence[Value] | None = None) -> None:
        super().__init__(None)
        self.cls, self.handler, self.args = cls, handler, args
        self.kwargs: dict[str, Value] = {}  # what it is made of beside the args

    def held(self) -> Iterable[Any]:
        return self.args or ()

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.handler(frame, args, kwargs)

    def reload(self, emit: Emitter) -> str:
        if self.args is None:
            return super().reload(emit)
        parts = [emit.load(a) for a in self.args] + [f"{k}={emit.load(v)}" for k, v in self.kwargs.items()]
        return f"{emit.const(self.cls)}({', '.join(parts)})"


MOST_ITEMS = 1000
"""That are asked of an object in one graph: nothing says that there is an end where no error comes while tracing."""


def items_from(owner: Any, position: int) -> Any:
    """An iterator over what has no `__iter__`, from a position on."""
    made: Any = iter(owner)
    made.__setstate__(position)
    return made


def ended_items() -> Any:
    """Such an iterator at its end, where it has let go of what it was over."""
    made: Any = iter(_Items())
    collections.deque(made, 0)
    return made


class ItemIterator(IteratorValue):
    """Iteration by __getitem__ with 0, 1, ... until IndexError; an operator that may raise that for some data is left to plain Python."""

    kind = ITEM_ITERATOR

    def __init__(self, owner: Value) -> None:
        super().__init__(None)
        self.owner: Value | None = owner
        """None from the end on, which stays the end."""
        self.position = 0

    def next_value(self, frame: Frame) -> Value | None:
        if self.owner is None:
            return None
        if self.position == MOST_ITEMS:
            frame.break_graph("loop_goes_on", f"{MOST_ITEMS} items of {self.owner.python_type().__name__} and no end")
        raised = frame.recording.effects.raised
        before = len(raised)
        try:
            item = self.owner.getitem(frame, ConstantValue(self.position))
        except SymbolicRaise as stop:
            if not issubclass(stop.value.python_type(), (IndexError, StopIteration)):
                raise
            self.owner = None
            return None
        if any(may_be(kinds, [IndexError, StopIteration]) for kinds in raised[before:]):
            frame.break_graph("loop_goes_on", f"items of {self.owner.python_type().__name__} end where an index is out of range")
        self.position += 1
        return item

    def parts(self) -> Iterable[Value]:
        return () if self.owner is None else (self.owner,)

    def reload(self, emit: Emitter) -> str:
        if self.owner is None:
            return f"{emit.const(ended_items)}()"
        return f"{emit.const(items_from)}({emit.load(self.owner)}, {self.position})"


make.provide(iterator=SequenceIterator, text_iterator=ConstantIterator)
