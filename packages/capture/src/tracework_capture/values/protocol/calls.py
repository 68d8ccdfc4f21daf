"""CALLS: what a call becomes. One row for each callable that is modelled instead of traced into or left to plain Python.

A key is the function, class or descriptor itself; the code object, for functions that are made anew; (class, name), for methods that are
known by name; or the dotted name, for functions of modules that may not be imported. Storeys add rows where the handlers are defined.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..._torch.torch_compile import DISABLED
from ...polyfills import FOLDED, POLYFILLS, NotComputed
from ...sources import Const
from .arguments import checked
from .constant import fold, force_plain
from .registry import Registry
from .value import Frame, Value

Handler = Callable[..., Value]
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Policy(enum.Enum):
    """What becomes of a call."""

    NODE = "a node of the graph"
    EVALUATED = "evaluated while tracing"
    MODELLED = "modelled by a row of its own"
    TRACED = "its Python code is traced"
    BREAK = "breaks the graph"


@dataclass(frozen=True, slots=True, eq=False)
class CallRow:
    """What becomes of calls of one callable.

    The handler takes (frame, args, kwargs); of a code object (frame, function, args, kwargs); of (class, name) what its class says.
    """

    key: Hashable
    handler: Handler
    policy: Policy
    reason: str | None
    """The id in BREAK_REASONS of the break that the call is, where the policy is BREAK."""
    place: str
    """file:line of the rule."""
    name: str
    """How the callable is written: torch.save, list.sort."""


CALLS: Registry[Hashable, CallRow] = Registry("CALLS")


def row_of(key: Any) -> CallRow | None:
    """The row of a callable by itself; None also for what cannot be a key."""
    try:
        return CALLS.get(key)
    except TypeError:
        return None


def function_name(fn: Any) -> str:
    """The dotted name of a function, by which CALLS may know it."""
    return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', '')}"


def row_of_function(fn: types.FunctionType) -> CallRow | None:
    """The row of a Python function: by its code, by itself, by what torch.compile put it in, by its name."""
    found = row_of(fn.__code__) or CALLS.get(fn)
    if found is None and fn.__code__ is DISABLED:  # torch.manual_seed, once torch.compile is loaded
        found = row_of(getattr(fn, "__wrapped__", None))
    return found or CALLS.get(function_name(fn))


def calls_that_break() -> dict[str, list[str]]:
    """Reason of a break -> names of the callables whose calls always break the graph for it."""
    found: dict[str, list[str]] = {}
    for row in CALLS.values():
        if row.reason is not None:
            found.setdefault(row.reason, []).append(row.name)
    return {reason: sorted(names) for reason, names in found.items()}


# --- rows ----------------------------------------------------------------------------------------------------------------


def call(
    *keys: Hashable, policy: Policy = Policy.MODELLED, reason: str | None = None, binds: bool = True
) -> Callable[[AnyHandler], AnyHandler]:
    """Adds a row for each key to CALLS; None stands for what this torch does not have. With `binds`, arguments that the signature of a
    class or function does not take break the graph before the handler sees them."""

    def add(handler: AnyHandler) -> AnyHandler:
        place = place_of(handler)
        for key in dict.fromkeys(keys):  # some names are of the same function in one version of torch, and not in another
            if key is not None:
                known = binds and takes_signature(key)
                CALLS[key] = CallRow(key, checked(key, handler) if known else handler, policy, reason, place, written(key))
        return handler

    return add


def calls(handlers: Mapping[Any, Handler], policy: Policy = Policy.MODELLED) -> None:
    """Adds rows of one policy, key -> handler."""
    for key, handler in handlers.items():
        call(key, policy=policy)(handler)


def method(
    owner: type, *names: str, policy: Policy = Policy.MODELLED, reason: str | None = None
) -> Callable[[AnyHandler], AnyHandler]:
    """Adds a row for methods of a class that its values know by name. What their handlers take is said where the class looks them up."""
    return call(*((owner, name) for name in names), policy=policy, reason=reason)


def methods(owner: type, handlers: Mapping[str, Handler]) -> None:
    """Adds rows for methods of a class, name -> handler."""
    for name, handler in handlers.items():
        method(owner, name)(handler)


def method_handler(owner: type, name: str) -> Handler | None:
    """The handler of a method that has a row."""
    row = CALLS.get((owner, name))
    return None if row is None else row.handler


def breaks(reason: str, *functions: Any, within: str = "") -> None:
    """Calls of these functions are left to plain Python; `within` is the module that they are known by, where it is
    not that of Python's builtins."""
    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    for fn in functions:
        name = f"{within}.{fn.__name__}" if within else fn.__name__
        CALLS[fn] = CallRow(fn, functools.partial(_break, reason, name), Policy.BREAK, reason, place, name)


def _break(reason: str, name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frame.break_graph(reason, name)


def traced(function: Callable[..., Any]) -> Handler:
    """A call that is traced as one of `function`, a polyfill."""

    @functools.wraps(function)
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.wrap(function, Const(function, function.__name__)).call(frame, list(args), kwargs)

    return handler


def written(key: Any) -> str:
    """How the callable of a key is written."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple):
        return f"{key[0].__name__}.{key[1]}"
    if isinstance(key, types.CodeType):
        return key.co_qualname
    name = getattr(key, "__qualname__", None) or getattr(key, "__name__", None) or str(key)
    module = getattr(key, "__module__", None)
    return name if module in (None, "builtins") else f"{module}.{name}"


def takes_signature(key: Any) -> bool:
    """Whether arguments are checked by what Python knows of a callable. Functions of torch and NumPy in C know more than they say."""
    if isinstance(key, types.BuiltinFunctionType):
        module = key.__module__ or getattr(key.__self__, "__module__", None) or ""
        return module.partition(".")[0] not in ("torch", "numpy")
    return isinstance(key, (type, types.FunctionType))


def place_of(handler: Any) -> str:
    """file:line of what a handler does."""
    while True:
        if hasattr(handler, "__wrapped__"):
            handler = handler.__wrapped__
        elif isinstance(handler, functools.partial):
            handler = handler.func
        else:
            break
    code = (vars(handler)["__init__"] if isinstance(handler, type) else handler).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def evaluated(function: Callable[..., Any]) -> Handler:
    """A call that is made while tracing, of arguments that must be known."""

    @functools.wraps(function)
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return fold(frame, function, args, kwargs)

    return handler


def not_computed(cls: type[NotComputed]) -> Handler:
    """What a polyfill says of a call that it leaves to the original."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.break_graph(cls.reason, force_plain(frame, args[0]))

    return handler


calls({original: traced(function) for original, function in POLYFILLS.items()}, policy=Policy.TRACED)
calls({function: evaluated(function) for function in FOLDED}, policy=Policy.EVALUATED)
_REFUSALS: tuple[type[NotComputed], ...] = (NotComputed, *NotComputed.__subclasses__())
calls({cls: not_computed(cls) for cls in _REFUSALS})
