"""Calls of table rows: arguments that the Python function would not take break the graph, so that it refuses them itself."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import itertools
import operator
import types
import warnings
from typing import TYPE_CHECKING, Any

from .value import Frame, Value

if TYPE_CHECKING:
    from .calls import Handler


@functools.cache
def positional_limits(handler: Handler, given: int) -> tuple[int, int]:
    """(least, most) number of positional arguments after the first `given` of a handler."""
    code = handler.__code__
    most = code.co_argcount - given
    least = most - len(handler.__defaults__ or ())
    return least, (1 << 30 if code.co_flags & inspect.CO_VARARGS else most)


def call_row(frame: Frame, self: Value, name: str, handler: Handler, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """handler(frame, self, *args, **kwargs) for a method of a built-in type."""
    least, most = positional_limits(handler, 2)
    if least <= len(args) <= most and (not kwargs or named(handler, self, name, args, kwargs)):
        return handler(frame, self, *args, **kwargs)
    return frame.break_graph("call_unknown", f"{self.python_type().__name__}.{name} with these arguments")


def named(handler: Handler, self: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether the method and its handler know the keywords."""
    code = handler.__code__
    if any(name in kwargs for name in code.co_varnames[code.co_posonlyargcount : 2]):
        return False
    known = code.co_varnames[2 : code.co_argcount + code.co_kwonlyargcount]
    if not (code.co_flags & inspect.CO_VARKEYWORDS or all(k in known for k in kwargs)):
        return False
    return accepted(getattr(self.python_type(), name, None), [self, *args], kwargs)


_TAKE_KEYWORDS = {dict, collections.OrderedDict, collections.defaultdict, str, bytes, zip, min, max, types.SimpleNamespace}
_TAKE_KEYWORDS |= {functools.partial, itertools.repeat, itertools.product, itertools.zip_longest, enumerate, collections.deque}
_TAKE_KEYWORDS |= {type, builtins.__build_class__, warnings.warn, operator.methodcaller}
"""Builtins that take keywords and have no signature to ask."""
_CHECK_THEMSELVES = {"torch", "torch._C", "torch._C._nn", "torch.autograd.variable"}
"""Modules whose classes and functions in C have no signature; their rows know what they take."""


@functools.cache
def signature_of(function: Any) -> inspect.Signature | None:
    """The signature, or None when Python does not know it; of a class with a __new__ of its own, such as torch.no_grad, what that takes."""
    make = function.__new__ if isinstance(function, type) else None
    if isinstance(make, types.FunctionType):
        taken = list(inspect.signature(make).parameters.values())[1:]
        if not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in taken):
            return inspect.Signature(taken)
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def accepted(function: Any, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a function takes these arguments; also when that is not known."""
    signature = None if function is None else signature_of(function)
    if signature is None:
        is_method = isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType))
        known = function in _TAKE_KEYWORDS or getattr(function, "__module__", None) in _CHECK_THEMSELVES
        return is_method or not kwargs or known or (function is int and set(kwargs) <= {"base"})
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def checked(function: Any, handler: Handler) -> Handler:
    """The handler of a builtin function, behind a check of the number and names of its arguments."""

    @functools.wraps(handler)
    def call(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        limits = builtin_limits(function)
        fits = not kwargs and (limits is None or limits[0] <= len(args) <= limits[1])
        if not fits and not accepted(function, args, kwargs):
            return frame.break_graph("call_unknown", f"{function.__name__}() with these arguments")
        return handler(frame, args, kwargs)

    return call


@functools.cache
def builtin_limits(function: Any) -> tuple[int, int] | None:
    """(least, most) number of positional arguments that a builtin always takes; None when that is not known."""
    signature = signature_of(function)
    if signature is None:
        return None
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    required_keywords = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in signature.parameters.values())
    least = sum(p.default is p.empty for p in positional)
    return None if required_keywords else (least, 1 << 30 if variadic else len(positional))
