"""Errors that the program's handlers of signals raise in the middle of capture: they are the program's, as KeyboardInterrupt is."""

from __future__ import annotations

import functools
import signal
import traceback
from types import CodeType
from typing import Any

__all__ = ["let_through"]


def let_through(error: Exception) -> None:
    """Raises the error again when the handler of a signal raised it, a timeout say: capture did not fail, and the program did not raise it.
    So it does with a RecursionError: capture is deeper in the stack than the program would be."""
    if isinstance(error, RecursionError):
        raise error
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)):
        raise error


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    # of the class itself, as a call finds it: signal.SIG_DFL is a member of an enum, whose metaclass has a __call__
    held = (vars(kind).get("__call__") for kind in type(function).__mro__)
    called = function if hasattr(function, "__code__") else next(filter(None, held), None)
    return getattr(called, "__code__", None)
