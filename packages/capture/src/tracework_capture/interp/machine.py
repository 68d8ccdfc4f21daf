"""The loop: fetch an instruction, look up its handler, run it; exceptions of the traced program unwind through its own table."""

from __future__ import annotations

from typing import Any

from tracework_primops import GuardOnUnbackedError

from ..errors import BreakGraph
from ..values.protocol.finalizers import refuse_release
from ..values.protocol.value import SymbolicRaise
from .frame import SymbolicFrame
from .handlers.table import RETURNED, SUSPENDED
from .opcodes import find_handler

_LEAVE_DEFERRED = frozenset(
    {
        "LOAD_FAST",
        "GET_ITER",
        "PUSH_NULL",
        "JUMP_FORWARD",
        "RESUME",
        "COPY_FREE_VARS",
        "POP_TOP",
        "STORE_FAST",
        "DELETE_FAST",
        "NOP",
    }
)


_RAISES_AGAIN = frozenset({"RERAISE", "RAISE_VARARGS"})  # and the traceback stays as it is


class StopHere(Exception):
    """The root frame reached the instruction before which an earlier attempt had to stop."""


def run(frame: SymbolicFrame, raised: SymbolicRaise | None = None) -> Any:
    """Run until the frame returns (RETURNED, value in frame.result) or yields (SUSPENDED); `raised` is thrown in first."""
    progress, is_root, stop_before = frame.progress, frame.parent is None, frame.plan.stop_before
    outer, progress.current = progress.current, frame
    instructions = frame.instructions
    try:
        if raised is not None:
            thrown, raised = raised, None  # no cycle of this frame and its own traceback
            try:
                unwind(frame, thrown)
            finally:
                del thrown
        while True:
            instruction = frame.current = instructions[frame.position]
            frame.position += 1
            progress.idle += 1
            if is_root:
                progress.step += 1
                if frame.deferred and instruction.opname not in _LEAVE_DEFERRED:
                    frame.settle()
                if progress.step == stop_before:
                    raise StopHere
            handler = instruction.run
            if handler is None:
                handler = instruction.run = find_handler(instruction.opname)
            try:
                try:
                    signal = handler(frame, instruction)
                except SymbolicRaise as error:
                    note_raise(frame, error)
                    unwind(frame, error)
                    signal = None
                if is_root and frame.memory.with_finalizers and signal is not RETURNED:
                    refuse_release(frame)
            except (BreakGraph, GuardOnUnbackedError) as stopped:
                stop = stopped if isinstance(stopped, BreakGraph) else BreakGraph("unbacked_condition", str(stopped))
                if not stop.stack:
                    stop.stack = frame.locations()
                    stop.is_error = bool(frame.modes.regions) and frame.modes.regions[-1]
                try:
                    raise stop from stopped.__cause__
                finally:
                    del stop  # no cycle of this frame and its own traceback
            if signal is RETURNED or signal is SUSPENDED:
                return signal
    finally:
        progress.current = outer


def note_raise(frame: SymbolicFrame, raised: SymbolicRaise) -> None:
    """The current instruction raises: the exception gets its context and traceback, and the step of the root frame where it came."""
    if not raised.again:
        raised.again = True
        frame.chain(raised.value)
    elif frame.current.opname not in _RAISES_AGAIN:
        frame.passes(raised.value)
    if frame.parent is None and raised.value.root_step is None:
        raised.value.root_step = frame.progress.step


def unwind(frame: SymbolicFrame, raised: SymbolicRaise) -> None:
    """Go to the handler that covers the current instruction, or let the exception leave the frame."""
    handler = frame.current.handler
    if handler is None:
        try:
            raise raised
        finally:
            del raised  # no cycle of this frame and its own traceback: it holds the user's objects
    del frame.stack[handler.depth :]
    if handler.push_lasti:
        offset = frame.current.offset if frame.raised_at is None else frame.raised_at
        frame.push(frame.constant(offset // 2))
    frame.raised_at = None
    frame.push(raised.value)
    frame.position = handler.target
