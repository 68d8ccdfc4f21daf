"""tracework.compiler: the names of torch.compiler."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch
import tracework_capture as capture

from . import _torch, backends
from . import config as environment
from .api import compile, dynamic_spec
from .backends import Backend, get_default_backend, list_backends, register_backend, set_default_backend
from .carrying import PrecompileError, load_cache_artifacts, load_compiled_function, precompile, save_cache_artifacts
from .compiled_module import CompiledModule
from .errors import NotCallable
from .observe import nothing
from .options import build, list_mode_options, list_options
from .torch_settings import config

__all__ = [
    "DimRange",
    "PrecompileError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "cudagraph_mark_warmup_incomplete",
    "disable",
    "disallow_in_graph",
    "dynamic_spec",
    "error_on_graph_break",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "leaf_function",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load_cache_artifacts",
    "load_compiled_function",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "precompile",
    "register_backend",
    "reset",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "step_unsupported",
    "substitute_in_graph",
    "wrap_numpy",
]


def reset() -> None:
    """Forgets every entry, mark and counter of this process, and the memory kept for calls; caches on disk stay."""
    from tracework_runtime import gpu_workspace, workspace  # not before something was compiled: it takes a tenth of a second

    capture.reset()
    workspace.forget()
    gpu_workspace.forget()


def cudagraph_mark_step_begin() -> None:
    """Says that a step begins, an inference or a training step: what is held from one step to the next is copied out of CUDA graphs.

    Nothing is overwritten that the program holds, with or without it.
    """
    from tracework_runtime import mark_step_begin  # as in reset()

    mark_step_begin()


def cudagraph_mark_warmup_incomplete() -> None:
    """Does nothing: a graph is recorded at the second call with its sizes, and what an operator measures in the first one is not recorded."""


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Whether ranks of torch.distributed decide together whether what is compiled serves a call: where it does not on one, all compile. Gives
    what was set before.

    For programs that make the same calls on all ranks. Each call of a compiled function then waits for the other ranks. Raises
    tracework_runtime.RankLost, with the number of a rank that has ended or hangs, and RanksApart where ranks call different functions.
    """
    return capture.set_agreement(_all_hold if enabled else None) is not None


def _all_hold(holds: bool, what: str) -> bool:
    from tracework_runtime import all_hold  # loaded with what is compiled

    return all_hold(holds, what)


# torch's own query, so that code which asks either gets one answer: False in plain Python, True while capture records.
is_compiling = torch.compiler.is_compiling
is_dynamo_compiling = torch.compiler.is_dynamo_compiling
is_exporting = torch.compiler.is_exporting

graph_break = capture.graph_break
skip_frame = capture.skip_frame
step_unsupported = capture.step_unsupported

allow_in_graph = capture.allow_in_graph
assume_constant_result = capture.assume_constant_result
disallow_in_graph = capture.disallow_in_graph
forbid_in_graph = capture.forbid_in_graph
leaf_function = capture.leaf_function
nonstrict_trace = capture.nonstrict_trace
substitute_in_graph = capture.substitute_in_graph
wrap_numpy = capture.wrap_numpy

error_on_graph_break = capture.error_on_graph_break

DimRange = capture.DimRange
mark_dynamic = capture.mark_dynamic
mark_static = capture.mark_static
mark_static_address = capture.mark_static_address
mark_unbacked = capture.mark_unbacked
maybe_mark_dynamic = capture.maybe_mark_dynamic

keep_portable_guards_unsafe = capture.keep_portable_guards_unsafe
keep_tensor_guards_unsafe = capture.keep_tensor_guards_unsafe
skip_all_guards_unsafe = capture.skip_all_guards_unsafe
skip_guard_on_all_nn_modules_unsafe = capture.skip_guard_on_all_nn_modules_unsafe
skip_guard_on_globals_unsafe = capture.skip_guard_on_globals_unsafe
skip_guard_on_inbuilt_nn_modules_unsafe = capture.skip_guard_on_inbuilt_nn_modules_unsafe


def nested_compile_region(fn: Any = None, **unused: Any) -> Any:
    """Gives the function back: it is part of the graphs that call it, and equal kernels are compiled once wherever they are.

    A decorator with and without arguments; torch.compile's `options`, `max_reuse_entries` and `reuse_hash_fn` have nothing to steer here.
    """
    if fn is None:
        return nested_compile_region
    if not callable(fn):
        raise NotCallable(f"nested_compile_region() takes a function, not {type(fn).__name__}: {fn!r}.")
    return fn


def set_stance(
    stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: str | Backend | None = None
) -> capture.set_stance:
    """What calls of compiled functions do from now on: a plain call, a context manager or a decorator.

    Args:
        stance: "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile" or
            "aot_eager_then_compile".
        skip_guard_eval_unsafe: check only guards that tell a function's entries apart; wrong results when anything else changes.
        force_backend: with the default stance, the backend of every compiled function, by name or as a callable.
    """
    options = build(None, None, environment.current())
    forced = None if force_backend is None else backends.resolve(force_backend, options, nothing)
    first = backends.resolve("aot_eager", options, nothing) if stance == "aot_eager_then_compile" else None
    return capture.set_stance(stance, skip_guard_eval_unsafe=skip_guard_eval_unsafe, force_backend=forced, first_backend=first)


set_stance._dynamo_forbidden = True  # type: ignore[attr-defined]  # as torch's has


def _stance_of(taken: Any) -> capture.Stance:
    """The stance that a program has taken with torch.compiler.set_stance."""
    options = build(None, None, environment.current())
    forced = None if taken.backend is None else backends.resolve(taken.backend, options, nothing)
    first = backends.resolve("aot_eager", options, nothing) if taken.stance == "aot_eager_then_compile" else None
    return capture.Stance(taken.stance, taken.skip_guard_eval_unsafe, forced, first)


capture.follow_stance(*_torch.STANCE, _stance_of)


_Callable = TypeVar("_Callable", bound=Callable[..., Any])


@overload
def disable(fn: _Callable, recursive: bool = True, *, reason: str | None = None) -> _Callable: ...
@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> Callable[[_Callable], _Callable]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks a function, an nn.Module or a class to run uncompiled; with `recursive` also what it calls.

    A decorator with and without arguments. A module or class is changed in place and given back: its calls, and the making of a
    class's instances, run uncompiled. Of what was compiled before, the uncompiled one is meant.
    """
    if fn is None:
        return lambda inner: disable(inner, recursive, reason=reason)
    if isinstance(fn, CompiledModule):
        fn = fn._orig_mod
    if isinstance(fn, torch.nn.Module):
        forward: Any = fn.forward
        bound = isinstance(forward, types.MethodType) and forward.__self__ is fn
        disabled = capture.disable(forward.__func__ if bound else forward, recursive=recursive, reason=reason)
        # a copy of the module gets a method of its own
        fn.forward = types.MethodType(disabled, fn) if bound else disabled
        return fn
    if isinstance(fn, type):
        for name in ("__init__", "forward" if issubclass(fn, torch.nn.Module) else "__call__"):
            method = getattr(fn, name, None)
            if isinstance(method, types.FunctionType):
                setattr(fn, name, capture.disable(method, recursive=recursive, reason=reason))
        return fn
    if not callable(fn):
        raise NotCallable(f"disable() takes a function, nn.Module or class, not {type(fn).__name__}: {fn!r}.")
    return capture.disable(fn, recursive=recursive, reason=reason)
