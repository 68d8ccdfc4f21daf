"""Forward hooks that the traced program puts on modules which were there before, and takes off again before it ends or the graph breaks.

They are part of the trace alone: no table of a module is written to. Where one of them would be on when the graph has run, or something
asks for its handle or for the tables, the frame is captured again, and the graph breaks where the hook is put on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from torch.utils.hooks import RemovableHandle

from ...plan import Again, Learnt
from ..number.deferred import place_here
from ..plain.sequence import NONE
from ..protocol.kinds import AbstractFunction, AbstractModule
from ..protocol.value import Emitter, Frame, Value
from .hooks import Handle

ROWS_OF_TABLES = {"register_forward_hook": "_forward_hooks", "register_forward_pre_hook": "_forward_pre_hooks"}
OF_ONE_FRAME = ("hook", "with_kwargs")
"""Arguments of a hook that is called like all others: after those that are there, and not in spite of an exception."""


class FrameHook(Handle):
    """The handle of one of them. `place`: where the program puts it on."""

    def __init__(
        self,
        frame: Frame,
        module: AbstractModule,
        table: str,
        hook: AbstractFunction,
        with_kwargs: bool,
        place: tuple[str, int, str, int],
    ) -> None:
        super().__init__(None)
        self.hooks = frame.modes.frame_hooks
        self.module, self.table, self.hook, self.with_kwargs, self.place = module, table, hook, with_kwargs, place
        self.hooks.append(self)

    def held(self) -> Iterable[Any]:
        return (self.hook,)

    def refused(self) -> NoReturn:
        """Raises Again: something needs the hook in the module's table, or its handle."""
        raise Again("hook_asked", Learnt(read_while_tracing=frozenset((self.place,))))

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__enter__":
            return self
        if name not in ("remove", "__exit__"):
            return self.refused()
        self.remove(frame)
        return NONE

    def remove(self, frame: Frame) -> None:
        if self in self.hooks:
            self.hooks.remove(self)

    def reload(self, emit: Emitter) -> str:
        return self.refused()


def put_on(frame: Frame, name: str, args: list[Any], kwargs: dict[str, Value]) -> Value | None:
    """The handle of module.register_forward_hook(hook) and its like; None where the hook must be one of the module."""
    given = dict(zip(OF_ONE_FRAME[:1], args[1:])) | kwargs
    place = place_here(frame)
    flags = {key: value for key, value in given.items() if key != "hook"}
    known = len(args) <= 2 and "hook" in given and all(value.is_constant() for value in flags.values())
    if not known or any(value.constant() for key, value in flags.items() if key not in OF_ONE_FRAME):
        return None
    if (
        frame.modes.transforms
        or frame.recording.selecting
        or place in frame.plan.learnt.read_while_tracing
        or args[0].source is None
    ):
        return None
    with_kwargs = "with_kwargs" in flags and bool(flags["with_kwargs"].constant())
    handle = FrameHook(frame, args[0], ROWS_OF_TABLES[name], given["hook"], with_kwargs, place)
    frame.modes.hook_numbers += 1
    frame.mutations.effect(("numbers of hooks",), lambda emit: count_hooks(emit, frame.modes.hook_numbers))
    return handle


def count_hooks(emit: Emitter, count: int) -> None:
    """Emits that so many hooks got their numbers."""
    emit.line(f"{emit.const(RemovableHandle)}.next_id += {count}")


def hooks_of_frame(frame: Frame, module: AbstractModule, table: str) -> list[Any]:
    """(hook, whether it gets keyword arguments) of those that are on, in their order."""
    return [(each.hook, each.with_kwargs) for each in frame.modes.frame_hooks if each.module is module and each.table == table]
