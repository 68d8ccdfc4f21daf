"""Functions that look at the frame which calls them, or change how it goes on; what is being handled there; the recursion limit."""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable

from ...code_origin import is_installed
from ...errors import SkipFrame
from ..plain.sequence import NONE, TupleValue
from ..protocol.binding import class_value
from ..protocol.calls import Handler, calls
from ..protocol.constant import ConstantValue
from ..protocol.value import Frame, Value


def exception(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """sys.exception(): what the traced frames handle; contextlib only wants to know that, others may mean the caller's."""
    handled = frame.handling()
    if handled is None and frame.globals is not contextlib.__dict__:
        return frame.break_graph("builtin_unsupported", "asking for the exception where none of the traced program is handled")
    return handled if handled is not None else NONE


def exc_info(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """sys.exc_info()"""
    handled = exception(frame, args, kwargs)
    if handled is NONE:
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([class_value(frame, handled.python_type()), handled, handled.getattr(frame, "__traceback__")])


def own_frame(name: str, looks: Callable[[list[Value]], bool] = lambda args: True) -> Handler:
    """A builtin that looks at the frame that calls it, or changes how it goes on."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not looks(args):
            return frame.break_graph("builtin_unsupported", f"{name}()")
        return frame.leave_plain("builtin_unsupported", f"{name}()")

    return handler


def reports_steps(name: str) -> Handler:
    """What has the steps of frames that run already reported: those that call it all go on as the program's own."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if frame.parent is not None and not frame.options.fullgraph:
            raise SkipFrame(f"{name}() reports the steps of the frame")
        return frame.leave_plain("builtin_unsupported", f"{name}()")

    return handler


def frame_above(name: str, default: int) -> Handler:
    """What gives the frame that is so many calls up: the user's functions look at its names, libraries at its module."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        above = args[0].constant() if args and args[0].is_constant() else default
        while above > 0 and frame.parent is not None and not is_installed(frame.code):
            frame, above = frame.parent, above - 1
        return frame.leave_plain("builtin_unsupported", f"{name}()")

    return handler


def globals_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frame.break_graph("builtin_unsupported", "globals()")


def recursion_limit(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frame.guards.state("recursion_limit", sys.getrecursionlimit(), frame.user_location())
    return ConstantValue(sys.getrecursionlimit())


calls(
    {
        globals: globals_,
        locals: own_frame("locals"),
        eval: own_frame("eval", lambda args: len(args) < 3),
        exec: own_frame("exec", lambda args: len(args) < 3),
        sys.getrefcount: own_frame("sys.getrefcount"),  # the frame is one of those that it counts
        sys.getsizeof: own_frame("sys.getsizeof"),  # how an object lies in memory depends on the steps in which it was made
        sys._getframe: frame_above("sys._getframe", 0),
        inspect.currentframe: frame_above("inspect.currentframe", 1),  # and f_back of it
        breakpoint: own_frame("breakpoint"),
        sys.settrace: reports_steps("sys.settrace"),
        sys.setprofile: reports_steps("sys.setprofile"),
        **{
            getattr(sys.monitoring, name): reports_steps(f"sys.monitoring.{name}")
            for name in ("set_events", "set_local_events", "restart_events")
            if hasattr(sys, "monitoring")
        },
        **{
            f: own_frame(f"traceback.{f.__name__}")
            for f in (traceback.walk_stack, traceback.extract_stack, traceback.format_stack)
        },
        traceback.print_stack: own_frame("traceback.print_stack"),
        sys.exc_info: exc_info,
        sys.exception: exception,
        sys.getrecursionlimit: recursion_limit,
    }
)
