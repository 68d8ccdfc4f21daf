"""When objects die: one that then does something (a `__del__`, the blocks that a generator is in) does it where plain Python drops the last reference,
while the captured part of a frame keeps all that it was given to its end. So the graph ends where the program drops that reference.
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Iterable
from typing import Any

import torch

from ...bytecode.resume import held_in_others, is_of_the_prologue
from ...guards.classes import attributes_of, defines
from ...guards.finalizers import dies_unseen
from ...guards.kinds import ATOMS
from ...sources import Local, Source
from .kinds import AbstractCell, AbstractClass, AbstractFunction, AbstractSequence
from .value import Frame, LazyValue, Value

MOST_LOOKED_AT = 1000  # objects that are looked into for the classes of what goes


def refuse_to_drop(frame: Frame, value: Value) -> None:
    """Breaks where what goes may be the last that holds an object which the traced program made, and that has a finalizer."""
    if defines(value.python_type(), "__del__"):
        frame.break_graph("side_effect_unknown", f"{value.python_type().__name__} has __del__, and may be dropped")


def drop_reference(frame: Frame, holder: Any, source: Source | None, where: Any) -> None:
    """What an existing holder has at a place (guards.finalizers) goes, and with it the last reference, maybe: breaks where somebody notices
    that, and guards that nobody does."""
    held = kinds_in(held_at(holder, where))
    if held.issubset(ATOMS) and where is True:
        return
    frame.memory.dropped |= held
    if not dies_unseen(holder, where) or (frame.memory.watched and not held.issubset(ATOMS)):
        names = ", ".join(sorted(kind.__name__ for kind in held))
        frame.break_graph("side_effect_unknown", f"{names}: somebody sees when it dies, and it may be dropped")
    frame.guard("DIES_UNSEEN", source, where)


def kinds_in(objects: Iterable[Any]) -> set[type]:
    """The classes of objects; of lists, tuples and dicts those of what they hold."""
    open_, kinds = [*objects], set()
    for obj in open_:
        if type(obj) in (list, tuple, dict) and len(open_) < MOST_LOOKED_AT:
            open_ += gc.get_referents(obj)
        else:
            kinds.add(type(obj))
    return kinds


def held_at(holder: Any, where: Any) -> list[Any]:
    """The objects there."""
    if where is True:
        return gc.get_referents(holder)
    if where is None:
        return [holder]
    if type(where) is types.MemberDescriptorType:
        try:
            return [where.__get__(holder, type(holder))]
        except AttributeError:
            return []
    if isinstance(holder, type):
        table = attributes_of(holder)
        return [table[where]] if where in table else []
    return [dict.__getitem__(holder, where)] if dict.__contains__(holder, where) else []  # past an own class of dicts


def guard_arguments(frame: Frame, given: Iterable[Value]) -> None:
    """Of the arguments that the frame no longer holds when its captured part ends, and does not give to its caller: nobody notices when they
    die. given: the values that it returns."""
    passed_on = held_in_others(frame.code)
    times = collections.Counter(map(id, frame.memory.arguments.values()))
    for name, obj in frame.memory.arguments.items():
        if name not in passed_on and type(obj) not in ATOMS and not holds(frame, obj, given):
            frame.guard("DIES_UNSEEN", Local(name), times[id(obj)])


def refuse_release(frame: Frame) -> None:
    """Breaks where the captured frame's stack and locals no longer hold one of the arguments in `with_finalizers`."""
    if is_of_the_prologue(frame.code, frame.current):
        return
    for obj in frame.memory.with_finalizers:
        if not holds(frame, obj):
            frame.break_graph("side_effect_unknown", f"a {type(obj).__name__} with a finalizer loses its last reference")


def holds(frame: Frame, obj: Any, given: Iterable[Value] = ()) -> bool:
    """Whether the frame's stack, locals or cells, or `given`, hold the object, itself or in a sequence that the traced program made."""
    if any(held is obj for held, _ in frame.locals.slots.values()):
        return True
    known = id(frame.memory.memo.get(id(obj)))
    cells = (cell._contents for cell in frame.cells.values() if isinstance(cell, AbstractCell))
    for value in (*frame.stack, *dict.values(frame.locals), *cells, *given):
        if value is not None and (value.obj is obj if type(value) is LazyValue else known in parts_of(value)):
            return True
    return False


def parts_of(value: Value) -> set[int]:
    """The identities of a value and of what sequences of the traced program in it hold."""
    open_, found = [value], set()
    while open_:
        value = open_.pop()
        if id(value) not in found and value.source is None and isinstance(value, AbstractSequence):
            open_ += value.items
        found.add(id(value))
    return found


def is_held(frame: Frame, value: Value) -> bool:
    """Whether an object surely lives: it was there before and nothing was changed, or a local has it, or what a local has."""
    if value.source is not None and not frame.mutations.entries and not may_have_died(frame, existing(value)):
        return True
    open_: list[Any] = []
    seen: set[int] = set()
    for asked in frame.callers():
        open_ += [*dict.values(asked.locals), *(cell._contents for cell in asked.cells.values())]
    while open_:
        held = open_.pop()
        if held is value:
            return True
        if isinstance(held, Value) and held.is_holder and id(held) not in seen:
            seen.add(id(held))
            open_ += held.held()
    return False


def existing(value: Value) -> Any:
    """The object that a value with a source is."""
    return value.real() if isinstance(value, (AbstractClass, AbstractFunction)) else value.obj


def may_have_died(frame: Frame, obj: Any) -> bool:
    """Whether the traced program dropped a reference without which an existing object may be dead: an argument that is in no local of the
    frame any more, or what a shared variable held that was written to."""
    frame = frame.outermost()
    value = frame.memory.memo.get(id(obj))
    unread = any(held is obj for held, _ in frame.locals.slots.values())
    if not unread and (value is None or all(v is not value for v in (*dict.values(frame.locals), *frame.stack))):
        if any(argument is obj for argument in frame.memory.arguments.values()):
            return True
    return any(cell.drops(obj) for cell in frame.memory.cells.values()) or may_be_dropped(frame, obj)


def may_be_dropped(frame: Frame, obj: Any) -> bool:
    """Whether something existing dropped a reference to such an object, or to what may hold it."""
    if isinstance(obj, torch.Tensor):
        return not frame.memory.dropped.issubset(ATOMS)
    return any(kind not in ATOMS and not issubclass(kind, torch.Tensor) for kind in frame.memory.dropped)
