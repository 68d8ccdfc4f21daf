"""Stands in for torch.compile in code that calls it itself.

The functions of torch stay the same objects and get other code, so that it does not matter who bound their names, or wrapped them, when.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from types import ModuleType
from typing import Any

import torch

from .after_import import after_import


def _compile(*args: Any, **kwargs: Any) -> Any:
    from tracework.api import compile

    return compile(*args, **kwargs)


def _set_stance(*args: Any, **kwargs: Any) -> Any:
    from tracework.compiler import set_stance

    return set_stance(*args, **kwargs)


def _reset() -> None:
    from tracework.compiler import reset

    reset()


def _cudagraph_mark_step_begin() -> None:
    from tracework.compiler import cudagraph_mark_step_begin

    cudagraph_mark_step_begin()


STAND_INS: tuple[tuple[Any, Any], ...] = (
    (torch.compile, _compile),
    (torch.compiler.set_stance, _set_stance),
    (torch.compiler.reset, _reset),
    (torch.compiler.cudagraph_mark_step_begin, _cudagraph_mark_step_begin),
)
"""What is replaced, and by what: what acts on the compiler as a whole. Marks on functions and tensors need no replacing: torch's are
honoured. The stand-ins load the compiler at their first call; their code runs with torch's globals."""
WRAPPERS = ("torch._dynamo.eval_frame", "OptimizedModule")
"""The class that libraries ask for: under its name stands one that our compiled modules are instances of, too."""


def replace_torch_compile() -> Replacement:
    """From now on `torch.compile`, `nn.Module.compile`, and `set_stance`, `reset` and `cudagraph_mark_step_begin` of torch.compiler are
    this compiler's, under every name that they have been bound to.

    For good, whatever becomes of what is given back; as a context manager, until its end. What torch.compile has made before stays as it
    is. Inside, `isinstance(module, torch._dynamo.OptimizedModule)` holds for our compiled modules too.
    """
    return Replacement(_replace())


class Replacement(contextlib.AbstractContextManager[None]):
    """What replace_torch_compile() gives: a context manager at whose end torch.compile is what it was before the call."""

    def __init__(self, began: bool):
        self._began = began

    def __enter__(self) -> None:
        self._began = _replace() or self._began

    def __exit__(self, *error: object) -> None:
        if self._began:
            self._began = False
            _restore()


_undo = contextlib.ExitStack()
_lock = threading.Lock()
_replaced: list[Any] = []


def _replace() -> bool:
    """Puts the stand-ins in place; False where they are in place already."""
    with _lock:
        if _replaced:
            return False
        for function, stand_in in STAND_INS:
            _undo.callback(setattr, function, "__code__", function.__code__)
            _undo.callback(delattr, function, "__signature__")
            function.__signature__ = inspect.signature(function)
            function.__code__ = stand_in.__code__
            _replaced.append(function)
        _undo.callback(after_import(WRAPPERS[0], _recognise))
        return True


def _restore() -> None:
    with _lock:
        _undo.close()
        _replaced.clear()


def _recognise(module: ModuleType) -> None:
    """Puts a class that knows our compiled modules in the place of torch's, wherever it has been bound."""
    theirs = getattr(module, WRAPPERS[1])

    class AnyCompiled(type):
        def __instancecheck__(cls, found: Any) -> bool:
            return isinstance(found, theirs) or hasattr(type(found), "_tracework")

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, theirs)

    both = AnyCompiled(theirs.__name__, (theirs,), {n: getattr(theirs, n) for n in ("__module__", "__qualname__", "__doc__")})
    _rebind(theirs, both)
    _undo.callback(_rebind, both, theirs)


def _rebind(old: Any, new: Any) -> None:
    """Puts `new` where a module has `old` under a name."""
    for module in list(sys.modules.values()):
        names = vars(module) if isinstance(module, ModuleType) else {}
        for name in [name for name, value in list(names.items()) if value is old]:
            setattr(module, name, new)
