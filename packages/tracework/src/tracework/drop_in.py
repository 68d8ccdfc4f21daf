"""Stands in for torch.compile in code that calls it itself.

The functions of torch stay the same objects and get other code, so that it does not matter who bound their names, or wrapped them, when.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ._torch import functions_of_torch_compiler
from .after_import import after_import


def _stand_in(*args: Any, **kwargs: Any) -> Any:
    """The code of what is replaced, which runs with torch's globals and loads the compiler at its first call."""
    from tracework.compiler import NAME  # type: ignore[attr-defined]  # each copy has a name of its own

    return NAME(*args, **kwargs)


REPLACED = (
    "set_stance reset cudagraph_mark_step_begin cudagraph_mark_warmup_incomplete list_backends get_default_backend"
    " set_default_backend save_cache_artifacts load_cache_artifacts set_enable_guard_collectives"
)
"""Functions of torch.compiler that act on the compiler as a whole, or ask it; some are not in each release. torch.compile goes with them,
torch._dynamo.reset and torch._dynamo.explain. Marks on functions and tensors need no replacing: torch's are honoured."""
LEFT = "load_compiled_function precompile"
"""Those that stay torch's: what torch has stored is torch's to load."""


WRAPPERS = ("torch._dynamo.eval_frame", "OptimizedModule")
"""The class that libraries ask for: under its name stands one that our compiled modules are instances of, too."""


def replace_torch_compile() -> Replacement:
    """From now on `torch.compile`, `nn.Module.compile` and what REPLACED names of torch.compiler are this compiler's, under every name that
    they have been bound to.

    For good, whatever becomes of what is given back; as a context manager, until its end. What torch.compile has made before stays as it
    is. Inside, `isinstance(module, torch._dynamo.OptimizedModule)` holds for our compiled modules too.
    """
    return Replacement(_replace())


class Replacement(contextlib.AbstractContextManager[None]):
    """What replace_torch_compile() gives: a context manager at whose end torch.compile is what it was before the call."""

    def __init__(self, began: bool) -> None:
        self._began = began

    def __enter__(self) -> None:
        self._began = _replace() or self._began

    def __exit__(self, *error: object) -> None:
        if self._began:
            self._began = False
            _restore()


_undo = contextlib.ExitStack()
_lock = threading.RLock()
_replaced: list[Any] = []


def _replace() -> bool:
    """Puts the stand-ins in place; False where they are in place already."""
    with _lock:
        if _replaced:
            return False
        _replaced.append(torch.compile)
        _replace_code(torch.compile)
        for function in functions_of_torch_compiler(REPLACED.split()):
            _replace_code(function)
        _undo.callback(after_import("torch._dynamo", _replace_in_dynamo))
        _undo.callback(after_import(WRAPPERS[0], _recognise))
        return True


def _replace_in_dynamo(dynamo: Any) -> None:
    theirs = dynamo.explain  # a closure, which cannot get other code
    _replace_code(dynamo.reset)

    def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
        """With this compiler: gives a function of f's arguments, or explains the call that further arguments make."""
        from .explanation import (  # the compiler is loaded at its first use, not where torch is imported
            TorchsExplanation,
            explain,
        )

        def run(*args: Any, **kwargs: Any) -> TorchsExplanation:
            return TorchsExplanation(explain(f)(*args, **kwargs))

        return run(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else run

    _rebind(theirs, explain)
    _undo.callback(_rebind, explain, theirs)  # it has no other name than torch's, which is given back


def _replace_code(function: Any) -> None:
    """The function of torch's is from now on ours of the same name, and shows its own signature."""
    code, name = _stand_in.__code__, function.__name__
    names = tuple(name if known == "NAME" else known for known in code.co_names)
    _undo.callback(setattr, function, "__code__", function.__code__)
    _undo.callback(delattr, function, "__signature__")
    function.__signature__ = inspect.signature(function)
    function.__code__ = code.replace(co_names=names, co_name=name, co_qualname=name)


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
