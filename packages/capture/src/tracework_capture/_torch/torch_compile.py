"""What a program told torch.compile, and the errors that it catches of it."""

import functools
import sys
import types
import typing
import weakref
from typing import Any

import torch

from ..own_packages import is_own_module


def hide_from_torch_compile(code: Any) -> None:
    """torch.compile's evaluator, should it be at work in this process, runs frames of this code, and all that they call, as they are."""
    evaluator = torch._C._dynamo.eval_frame
    as_it_is = evaluator._FrameAction.SKIP
    evaluator.set_code_exec_strategy(code, evaluator._FrameExecStrategy(as_it_is, as_it_is))


_TORCH_COMPILE_SETS = {
    "_leaf_function_ids": "leaf_function",
    "_nonstrict_trace_callable_ids": "nonstrict_trace",  # before the next one, which has all of these
    "_allowed_callable_ids": "allow_in_graph",
    "_disallowed_callable_ids": "disallow_in_graph",
}


def mark_of_torch_compile(function: Any) -> str | None:
    """What torch.compile was told about this function, as far as it was ever loaded in this process; we do not load it."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None:
        return None
    for name, kind in _TORCH_COMPILE_SETS.items():
        numbers = getattr(getattr(rules, name, None), "function_ids", None)
        if numbers and id(function) in numbers:
            return kind
    return None


def substitute_of_torch_compile(function: Any) -> tuple[Any, bool] | None:
    """(what torch.compile was told to trace instead of this function, whether it may be run on constants). Its own substitutes, for
    functions that are modelled here, do not count."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    if functions is None or not isinstance(function, typing.Hashable):
        return None
    known = functions.PolyfilledFunctionVariable._get_polyfill_handlers().get(function)
    traceable = getattr(known, "__torch_dynamo_polyfill__", None)
    if traceable is None or (traceable.__module__ or "").startswith("torch."):
        return None
    return traceable, known.__torch_dynamo_can_constant_fold_through__


def breaks_are_errors_in_torch_compile() -> bool:
    """Whether the program is in a region of torch.compile's error_on_graph_break(True)."""
    found = sys.modules.get("torch._dynamo.utils")
    return found is not None and getattr(found, "_error_on_graph_break", False) is True


DISABLED = torch._disable_dynamo(  # type: ignore[attr-defined]
    lambda: None
).__code__
"""The code of what torch.compile makes of functions that it must leave alone."""


def patched_by_torch_compile(function: Any) -> Any:
    """The method of one of torch's optimizers that torch.compile, once it was used, put a function that is switched off around; None
    for other functions. That says what torch.compile cannot do, and is no wish of the program."""
    if not (function.__module__ or "").startswith("torch.optim.") or "_torchdynamo_orig_callable" not in function.__dict__:
        return None
    return function.__wrapped__


TORCHS_ERRORS = {
    "Unsupported": ("torch._dynamo.exc", "Unsupported"),
    "RecompileError": ("torch._dynamo.exc", "RecompileError"),
    "RecompileLimitError": ("torch._dynamo.exc", "FailOnRecompileLimitHit"),
    "BackendError": ("torch._dynamo.exc", "BackendCompilerFailed"),
    "CompileError": ("torch._dynamo.exc", "BackendCompilerFailed"),
    "InternalCaptureError": ("torch._dynamo.exc", "InternalTorchDynamoError"),
    "DynamicDimError": ("torch.fx.experimental.symbolic_shapes", "ConstraintViolationError"),
}
"""Errors of ours, by name -> module and name of those that a program written for torch.compile catches."""


def also_torchs(error: Exception) -> None:
    """Makes an error of ours one of torch.compile's, too, where the program has those: by their classes it may be caught."""
    kind = next((kind for kind in type(error).__mro__ if kind.__name__ in TORCHS_ERRORS), None)
    if kind is None or not is_own_module(kind.__module__):
        return
    module, name = TORCHS_ERRORS[kind.__name__]
    twin = getattr(sys.modules.get(module), name, None)
    if twin is None:
        _without_twin.add(error)
    elif not isinstance(error, twin):
        own: Any = type(error)
        error.__class__ = _with_twin(own, twin)


_without_twin: weakref.WeakSet[Exception] = weakref.WeakSet()


def errors_become_torchs(module: types.ModuleType) -> None:
    """To be called when torch.compile's errors have been imported: `except torch._dynamo.exc.Unsupported` may be what imports them, while an
    error of ours waits for its clause."""
    for error in list(_without_twin):
        _without_twin.discard(error)
        also_torchs(error)


@functools.cache
def _with_twin(kind: type, twin: type) -> Any:
    return type(
        kind.__name__, (kind, twin), {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    )
