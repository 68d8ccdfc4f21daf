"""Errors that the program's handlers of signals raise in the middle of capture or of a compilation: they are the program's, as
KeyboardInterrupt is, and no failure of ours, nor an answer to what was tried."""

from __future__ import annotations

import functools
import inspect
import itertools
import signal
import threading
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

from .own_packages import is_own_module

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])


class _FromHandler(BaseException):
    """Carries the error of a handler past every `except Exception`."""


class _DeferredHandler:
    """Stands for a handler of the program while code of ours runs; `raised` takes what it raises."""

    def __init__(self, handler: Callable[..., Any], raised: list[BaseException]) -> None:
        self.handler = handler
        self.raised = raised
        self.active = False

    def __call__(self, number: int, frame: Any) -> Any:
        try:
            return self.handler(number, frame)
        except BaseException as error:
            if not self.active:
                raise
            self.raised.append(error)
            if isinstance(error, Exception):
                raise _FromHandler(error) from None
            raise


def defer_signal_errors(function: Wrapped) -> Wrapped:
    """The function, out of which an error of a handler of a signal comes as it was raised, whatever is caught inside, and where Python drops
    it: a handler may run in a destructor, a callback of a weak reference or one of the garbage collector. It then comes at the end."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        raised: list[BaseException] = []
        switched = _switched(raised)
        try:
            for stand_in in switched.values():
                stand_in.active = True
            return function(*args, **kwargs)
        except _FromHandler:
            if not switched:  # it is inside of another such function
                raise
        finally:
            for stand_in in switched.values():
                stand_in.active = False
            for number in switched:
                if signal.getsignal(number) is switched[number]:  # and the handler put no other there
                    signal.signal(number, switched[number].handler)
            if raised:
                raise raised[-1]

    return call  # type: ignore[return-value]


def _switched(raised: list[BaseException]) -> dict[int, _DeferredHandler]:
    """Number of a signal -> what stands for the handler that the program has for it; where handlers run is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    if any(type(handler) is _DeferredHandler and handler.active for handler in handlers.values()):
        return {}
    own = {
        number: _DeferredHandler(handler, raised)
        for number, handler in handlers.items()
        if callable(handler) and handler is not _INTERRUPT
    }
    for number, stand_in in own.items():
        signal.signal(number, stand_in)
    return own


_SIGNALS = sorted(map(int, signal.valid_signals()))
_INTERRUPT = signal.default_int_handler


def let_through(error: Exception) -> None:
    """Raises the error again when the handler of a signal raised it where guards ask, outside of any function whose handlers are apart. So
    it does with a RecursionError: capture is deeper in the stack than the program would be."""
    if isinstance(error, RecursionError):
        raise error
    handlers = {_code_of(signal.getsignal(number)) for number in _SIGNALS} - {None}
    if any(frame.f_code in handlers or _got_its_caller(frame) for frame, _ in traceback.walk_tb(error.__traceback__)):
        raise error


def _got_its_caller(frame: FrameType) -> bool:
    """Whether this was called as Python calls a handler, which by now may have put another in its place: with a number and the frame that
    is interrupted."""
    code = frame.f_code
    takes_both = code.co_argcount > 1 or code.co_flags & inspect.CO_VARARGS
    if not takes_both or is_own_module(frame.f_globals.get("__name__")):
        return False  # before 3.13 a frame keeps its f_locals: those of ours would hold the error, whose traceback holds them
    names = frame.f_locals
    given = [names.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & inspect.CO_VARARGS:
        given += names.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    called = (interrupted is frame.f_back for number, interrupted in itertools.pairwise(given) if type(number) is int)
    return frame.f_back is not None and any(called)


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    # of the class itself, as a call finds it: signal.SIG_DFL is a member of an enum, whose metaclass has a __call__
    held = (vars(kind).get("__call__") for kind in type(function).__mro__)
    called = function if hasattr(function, "__code__") else next(filter(None, held), None)
    return getattr(called, "__code__", None)
