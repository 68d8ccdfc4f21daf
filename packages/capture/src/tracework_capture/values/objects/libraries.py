"""Functions of other libraries that look something up in a way that tracing cannot follow: answered while tracing."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, cast

import torch

from ... import _C
from ..._torch.modules import any_hook_of_all_modules
from ...errors import NotPlain
from ...guards.classes import defines
from ...sources import CellContents, Const
from ..plain.mapping import DictValue
from ..plain.sequence import NONE
from ..protocol.calls import Handler, calls
from ..protocol.constant import called_there, fold_literal, fold_plain, force_plain, plain
from ..protocol.kinds import AbstractTensor
from ..protocol.properties import function_value
from ..protocol.value import Frame, Value
from .function import call_own_code

STAND_INS: dict[type, Callable[[], torch.Tensor]] = {
    torch.Tensor: lambda: torch.empty(0),
    torch.nn.Parameter: lambda: torch.nn.Parameter(torch.empty(0)),
}


def einops_backend(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """einops finds its backend for a type of tensors once and keeps it for good; looking for it goes through all subclasses of a class
    and imports modules."""
    find = sys.modules["einops._backends"].get_backend
    make = STAND_INS.get(args[0].python_type()) if len(args) == 1 and isinstance(args[0], AbstractTensor) else None
    if make is None:
        return call_own_code(frame, find, args, kwargs)
    backend = find(make())
    return frame.wrap(backend, Const(backend, "einops_backend"))


def place_of_module(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """importlib.util.find_spec(name): programs ask whether a package is installed, which holds as long as the process does."""
    frame.memory.only_now = "the program asks whether a package is installed"
    given = [force_plain(frame, value) for value in args], {name: force_plain(frame, value) for name, value in kwargs.items()}
    found = fold_plain(frame, importlib.util.find_spec, *given[0], **given[1])
    return NONE if found is None else frame.wrap(found, Const(found, "spec"))


def below_generation_tagging(name: str, variable: str) -> Handler:
    """A method of nn.Module as torch.compile leaves it for the process once it was used: it notes down modules for itself afterwards.
    `variable` is where it keeps the method that was there before."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        patched = getattr(torch.nn.Module, name)
        method = patched.__closure__[patched.__code__.co_freevars.index(variable)].cell_contents
        return call_own_code(frame, method, args, kwargs)

    return row


def graph_module_call(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A torch.fx.GraphModule inside of the program: what its class puts around the call only says where an error was."""
    module: Any = args[0]
    cls: Any = module.python_type()
    if cls._wrapped_call.cls_call is not None:
        return frame.break_graph("call_unknown", f"{module.describe()}, whose class had a __call__ before it was recompiled")
    inherited = super(cls, cls).__call__
    if inherited is torch.nn.Module.__call__:
        found: Value = module.call_impl(frame, args[1:], kwargs)
        return found
    return function_value(frame, inherited).call(frame, list(args), kwargs)


def optimized_module_call(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A module that torch.compile made inside of the program: what is put around the call warns of hooks on all modules only."""
    if any_hook_of_all_modules():
        return frame.break_graph("call_skipped", "a module that torch.compile made, while there are hooks on all modules")
    module: Any = args[0]
    found: Value = module.call_impl(frame, args[1:], kwargs)
    return found


def decided(function: str, kind: type) -> Handler:
    """What torch.compile is told about a condition or a number: here the comparison has been decided, and a number may stay open."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = [*args, *kwargs.values()]
        if len(given) == 1 and given[0].python_type() is kind:
            return given[0]
        return frame.break_graph("call_skipped", f"{function} of something else than {kind.__name__}")

    return row


DECIDED = {
    **dict.fromkeys(("guard_bool", "guard_or_false", "guard_or_true", "guard_size_oblivious", "statically_known_true"), bool),
    "guard_int": int,
    "guard_float": float,
}


def no_unbacked_sizes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """has_free_unbacked_symbols(): sizes out of data are compared as others are, and not asserted."""
    return frame.constant(False)


def begin_step(module: str) -> Handler:
    """Tells recordings, of this compiler or of torch.compile, where a step begins: behind the graph, as all that has an effect."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        frame.mutations.call(_C.Scoped(sys.modules[module].cudagraph_mark_step_begin, None), [])
        return NONE

    return row


def implementation(frame: Frame, function: types.FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What functools.singledispatch calls for a class: it keeps what it found in a dict of its own. What is registered is guarded."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    registry, cache = cells["registry"].cell_contents, cells["dispatch_cache"].cell_contents
    if type(cache) is not weakref.WeakKeyDictionary:
        return frame.break_graph("call_unknown", "functools.singledispatch with another dict for what it found")
    place = CellContents(Const(function, "dispatch"), function.__code__.co_freevars.index("registry"))
    table = cast(DictValue, frame.wrap(registry, place))
    kinds = [key.real() for key in table.all_keys(frame)]
    if any(defines(kind, "__abstractmethods__") for kind in kinds):
        return frame.break_graph("call_unknown", "functools.singledispatch over abstract classes")
    found = next(kind for kind in args[0].real().__mro__ if kind in kinds)
    return table.getitem(frame, frame.wrap(found, Const(found, found.__name__)))


def of_texts(function: Any) -> Handler:
    """A function of re, which keeps what it compiles in a dict of its own."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            known, by_name = [plain(a) for a in args], {name: plain(a) for name, a in kwargs.items()}
        except NotPlain:  # a function that makes replacements, say
            return call_own_code(frame, function, args, kwargs)
        return fold_literal(frame, functools.partial(called_there, frame, function), *known, **by_name)

    return row


calls({functools.singledispatch(len).dispatch.__code__: implementation})
calls(
    {
        **{f"{module}.cudagraph_mark_step_begin": begin_step(module) for module in ("torch.compiler", "tracework.compiler")},
        "einops._backends.get_backend": einops_backend,
        "importlib.util.find_spec": place_of_module,
        **{
            f"re.{function.__name__}": of_texts(function)
            for function in (
                re.search,
                re.match,
                re.fullmatch,
                re.sub,
                re.subn,
                re.split,
                re.findall,
                re.finditer,
                re.compile,
                re.escape,
            )
        },
        "torch.fx.graph_module.GraphModule.recompile.<locals>.call_wrapped": graph_module_call,
        **{f"torch.fx.experimental.symbolic_shapes.{name}": decided(name, kind) for name, kind in DECIDED.items()},
        "torch.fx.experimental.symbolic_shapes.has_free_unbacked_symbols": no_unbacked_sizes,
        "torch._dynamo.eval_frame.OptimizedModule.__call__": optimized_module_call,
        **{
            f"torch._dynamo.mutation_guard.install_generation_tagging_init.<locals>.patched_{kept}": below_generation_tagging(
                name, kept
            )
            for name, kept in (("__init__", "init"), ("__setstate__", "setstate"))
        },
    }
)
