"""Calls of loggers: made after the graph, with the texts of now, from frames that have the file, line and name of those that log."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from typing import Any

from ...bytecode.resume import original_code
from ...code_origin import is_installed
from ...polyfills.torch_functions import listeners
from ...sources import Const
from ..number.deferred import DeferredValue
from ..number.floats import DeferredFloat
from ..number.symint import SymNumber
from ..plain.sequence import NONE
from ..plain.str_percent import conversions
from ..protocol.calls import Handler, calls
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .rows_attributes import call_after_graph, deferred_shown

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "log": None,  # it is the first argument
}


def method_row(name: str) -> Handler:
    """logger.info(...) and the like: nothing where the logger is not enabled for it, which is guarded."""
    said = log_row(getattr(logging.Logger, name))

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        level: list[Value] = args[1:2] if LEVELS[name] is None else [ConstantValue(LEVELS[name])]
        if level and not args[0].call_method(frame, "isEnabledFor", level, {}).truth(frame):
            return NONE
        return said(frame, args, kwargs)

    return row


def log_row(function: Callable[..., None]) -> Handler:
    """A function that logs: called after the graph with the arguments as they are now."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if "exc_info" in kwargs and force_plain(frame, kwargs["exc_info"]):
            return frame.break_graph("print", "a log record with an exception")
        owner = [args[0]] if not isinstance(args[0], ConstantValue) else []
        refuse_listeners(frame, owner[0] if owner else frame.wrap(logging.root, Const(logging.root, "root")))
        call, depth = from_frames_of(frame, function)
        if "stacklevel" in kwargs and (level := force_plain(frame, kwargs["stacklevel"])) > depth:
            kwargs = kwargs | {"stacklevel": ConstantValue(level + 1)}  # the frame itself is above what stands for it
        first = len(owner) + (LEVELS[function.__name__] is None) + 1  # after the message
        message = args[first - 1 : first]
        shown = [shown_as(frame, value, kind) for value, kind in zip(args[first:], conversions_of(message, len(args) - first))]
        call_after_graph(frame, call, owner + [shown_as(frame, a, "s") for a in args[len(owner) : first]] + shown, kwargs)
        return NONE

    return row


def refuse_listeners(frame: Frame, logger: Value) -> None:
    """Breaks the graph where a filter or handler of the program gets the records: it may change what the frame looks at next."""
    for each in frame.wrap(listeners, Const(listeners, "listeners")).call(frame, [logger], {}).unpack(frame):
        cls = each.python_type()
        methods = [getattr(cls, name, None) for name in ("filter", "handle", "emit", "format")]
        codes = [getattr(method, "__code__", None) for method in [getattr(each, "function", None), *methods]]
        if any(code is not None and not is_installed(code) for code in codes):
            frame.break_graph("print", f"a log record for {each.describe()}, which is code of the program")


def conversions_of(message: list[Value], count: int) -> list[str | None]:
    """What the message makes of each of so many arguments."""
    text = message[0].constant() if message and message[0].is_constant() else None
    return conversions(text, count) if type(text) is str else [None] * count


def shown_as(frame: Frame, value: Value, conversion: str | None) -> Value:
    """Log arguments: constants stay, sizes and tensors stay as they are now, objects become the text that %s makes of them."""
    if value.is_constant():
        return value
    if conversion != "s" and not isinstance(value, (SymNumber, DeferredFloat, DeferredValue, AbstractTensor)):
        frame.break_graph("print", f"a log record that shows {value.describe()} otherwise than by %s")
    return deferred_shown(frame, value)


def from_frames_of(frame: Frame, function: Any) -> tuple[Callable[..., Any], int]:
    """A function that calls `function` as from these frames, for those who look where a call comes from; and how many they are."""
    depth = 0
    above: Frame | None = frame
    while above is not None:
        function, above, depth = from_frame_of(above, function), above.parent, depth + 1
    return function, depth


def from_frame_of(frame: Frame, function: Any) -> types.FunctionType:
    code = original_code(frame.code)
    call = lambda *args, **kwargs: function(*args, **kwargs)  # in one line, which becomes that of the frame
    place = call.__code__.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=frame.line(),
    )
    return types.FunctionType(place, frame.globals, code.co_name, None, call.__closure__)


calls(
    {
        **{getattr(logging, name): log_row(getattr(logging, name)) for name in LEVELS},
        **{getattr(logging.Logger, name): method_row(name) for name in LEVELS},
    }
)
