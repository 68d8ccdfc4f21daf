"""A frame that is about to run, as it is given to a capture."""

from __future__ import annotations

import collections
import types
from typing import Any

from ..bytecode.resume import held_in_others
from ..guards.finalizers import dies_unseen
from ..guards.kinds import ATOMS

NOTHING, ONE_OPERATION = "no tensor operations", "one tensor operation, which a graph would not make faster"
HOLDERS_OF_A_SLOT = 3  # the frame, the table that the evaluator makes of it, and that of the arguments
HOLDERS_HERE = 4  # names of functions, and what calls pass


class FrameInput:
    """A frame about to run: its code, the objects in its argument slots and cells, and its globals; whether it is the one that
    the user wants compiled, and none that broken code calls."""

    def __init__(
        self,
        code: types.CodeType,
        slots: dict[str, Any],
        globals_: dict[str, Any],
        closure: tuple[types.CellType, ...] | None,
        outermost: bool = True,
    ) -> None:
        self.outermost = outermost
        self.code, self.slots, self.globals, self.closure = code, slots, globals_, closure or ()
        self.with_finalizers = arguments_with_finalizers(code, slots)  # now, as a capture holds them, too


def arguments_with_finalizers(code: types.CodeType, slots: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a frame that is about to run which are no one's but its own, and of which the program sees when they die: by what they
    do then, what they alone hold does, or a weak reference's callback."""
    passed_on = held_in_others(code)
    times = collections.Counter(map(id, slots.values()))
    objects = list({id(obj): obj for name, obj in slots.items() if name not in passed_on and type(obj) not in ATOMS}.values())
    with_finalizers = []
    while objects:
        obj = objects.pop()
        if not dies_unseen(obj, times[id(obj)] * HOLDERS_OF_A_SLOT + HOLDERS_HERE):
            with_finalizers.append(obj)
        del obj
    return tuple(with_finalizers)


def forget_frames(error: BaseException | None, handled: BaseException | None) -> None:
    """Drop the tracebacks of an exception that is kept: they hold our frames, those hold the user's, and with it all its locals. What
    the program was handling when it called the frame is the context of ours, and keeps its own."""
    seen = {id(handled)}
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
