"""When objects die: one that then does something (a `__del__`, the blocks that a generator is in) does it where plain Python lets go of it,
while the captured part of a frame keeps all that it was given to its end. So the graph ends where the program lets go of such an object.
"""

from __future__ import annotations

import collections
import gc
import traceback
import types

from ..bytecode.code import cleans_up
from ..bytecode.resume import is_of_the_prologue
from ..guards.classes import defines
from .function import CellValue
from .sequence import Pending, SequenceValue
from .value import Deferred, Value

CONTAINERS = (list, tuple, set, frozenset, collections.deque)
METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def acts_when_it_dies(obj):
    """Whether the program sees when the object dies: by what it does then itself, or what it holds as a container or an exception does."""
    if type(obj) is types.GeneratorType:
        return obj.gi_frame is not None and cleans_up(obj.gi_code)
    return defines(type(obj), "__del__") or any(defines(kind, "__del__") for kind in {*map(type, held_with(obj))})


def held_with(obj):
    """What an object holds as a container or a method, or an exception in its arguments, its attributes and the locals of the frames that it passed."""
    if type(obj) is dict:
        return [*obj, *obj.values()]
    if type(obj) in CONTAINERS:
        return obj
    if type(obj) in METHODS:
        return (obj.__self__,)
    if not issubclass(type(obj), BaseException):
        return ()
    held = gc.get_referents(obj)
    for part in tuple(held):
        if type(part) is types.TracebackType:
            held += [local for frame, _ in traceback.walk_tb(part) for local in frame.f_locals.values()]
        elif type(part) in (tuple, dict):
            held += held_with(part)
    return held


def refuse_to_drop(frame, obj):
    """Breaks where what goes from an existing object may be the last that holds an object, or an item that nobody read, and it acts when it
    dies."""
    is_value = issubclass(type(obj), Value)
    kind = obj.python_type() if is_value else type(obj.obj if type(obj) is Pending else obj)
    if defines(kind, "__del__"):
        frame.break_graph("side_effect_unknown", f"{kind.__name__} has __del__, and may be dropped")


def refuse_to_let_go(frame):
    """Breaks where the captured frame's stack and locals no longer hold one of the arguments in `acting`."""
    if is_of_the_prologue(frame.code, frame.current):
        return
    for obj in frame.root.acting:
        if not holds(frame, obj):
            frame.break_graph("side_effect_unknown", f"a {type(obj).__name__} that acts when it dies is let go of")


def holds(frame, obj):
    """Whether the frame's stack, locals or cells hold the object, itself or in a sequence that the traced program made."""
    if any(held is obj for held, _ in frame.locals.slots.values()):
        return True
    known = id(frame.root.memo.get(id(obj)))
    cells = (cell._contents for cell in frame.cells.values() if type(cell) is CellValue)
    for value in (*frame.stack, *dict.values(frame.locals), *cells):
        if value is not None and (value.obj is obj if type(value) is Deferred else known in parts_of(value)):
            return True
    return False


def parts_of(value):
    """The identities of a value and of what sequences of the traced program in it hold."""
    open_, found = [value], set()
    while open_:
        value = open_.pop()
        if id(value) not in found and value.source is None and isinstance(value, SequenceValue):
            open_ += value.items
        found.add(id(value))
    return found
