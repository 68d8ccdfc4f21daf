"""Rows of functions of NumPy and methods of arrays that functions of torch compute.

A handler has NumPy's parameters behind `frame`; values that are not given are plain Python objects. What is given as `out` is written to
behind it. A call with other parameters, and whatever a handler does not compute as NumPy does, breaks the graph.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from ...arrays import numpy
from ...sources import Const
from ..protocol.calls import AnyHandler, Handler
from ..protocol.calls import call as calls_of
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .array import ArrayValue
from .breaks import refuse, watch_errors
from .operands import computed_now
from .tensors import named, taking_tensors


def numpy_calls(rows: dict[Any, Handler]) -> None:
    """Adds rows, function or class of NumPy -> row, which take tensors, too, where NumPy does."""
    for fn, row in rows.items():
        inside = getattr(fn, "_implementation", None)  # NumPy's own code calls some of them past the dispatch
        calls_of(fn, inside if isinstance(inside, types.BuiltinFunctionType) else None)(taking_tensors(fn, row))


def function(
    *names: Any, method: str | None = None, pure: bool = True, complex: bool = False, parameters: str | None = None
) -> Callable[[AnyHandler], AnyHandler]:
    """Adds a handler for functions of numpy of these names, and for a method; pure ones are computed now when all is known, complex ones
    take complex numbers, too. `parameters`, where the handler has others, are those behind the array that may be given by place."""

    def add(handler: AnyHandler) -> AnyHandler:
        rows = {}  # some are newer than others, and some have two names
        for name in names:
            if (found := named(name)) is not None:
                rows[found] = function_row(handler, found if pure else None, name, complex, parameters)
        numpy_calls(rows)
        if method is not None:
            calls_of((numpy.ndarray, method))(function_row(handler, None, method, complex, parameters))
        return handler

    return add


def function_row(handler: Handler, known: Any, name: str, complex: bool = False, parameters: str | None = None) -> Handler:
    """The row of a handler."""
    signature = inspect.signature(handler)
    places = None if parameters is None else parameters.split()
    program = getattr(known, "_implementation", None)
    program = program if isinstance(program, types.FunctionType) and program.__module__ != "numpy._core.fromnumeric" else None

    @functools.wraps(handler)
    def computes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        now = None if known is None else computed_now(frame, known, args, kwargs)
        if now is not None:
            return now
        if places is not None and len(args) <= len(places) + 1:
            args, kwargs = args[:1], dict(zip(places, args[1:])) | kwargs
        kwargs = {k: v for k, v in kwargs.items() if not says_nothing(k, v)}
        out = kwargs.pop("out", None)
        if not complex and any(isinstance(a, ArrayValue) and a.dtype.kind == "c" for a in (*args, *kwargs.values())):
            return refuse(frame, f"numpy.{name} of complex numbers")
        try:
            signature.bind(frame, *args, **kwargs)
        except TypeError:
            if program is not None:
                return frame.wrap(program, Const(program, program.__qualname__)).call(frame, args, kwargs)
            return refuse(frame, f"numpy.{name} with these arguments")
        watch_errors(frame)
        found = handler(frame, *args, **kwargs)
        return found if out is None else put(frame, name, out, found)

    return computes


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "casting": ("same_kind",),
    "device": (None, "cpu"),
    "dtype": (None,),
    "like": (None,),
    "out": (None,),
    "shape": (None,),
    "subok": (True, False),
}
"""Parameter of functions of NumPy -> what it may be without a change in the result; arrays in a graph are of no subclass."""


def says_nothing(name: str, value: Value) -> bool:
    """Whether an argument is as good as none."""
    if getattr(value, "obj", None) is numpy._NoValue:
        return True
    neutral = NEUTRAL.get(name, ())
    if not neutral or not value.is_constant():
        return False
    given = value.constant()
    # numpy.dtype("float64") == None: only identity tells these apart.
    return None in neutral if given is None else given in [other for other in neutral if other is not None]


def put(frame: Frame, name: str, out: Any, found: Any) -> ArrayValue:
    """out=: the array, after the result was written to it."""
    fits = isinstance(out, ArrayValue) and not out.scalar and isinstance(found, ArrayValue) and out.dtype == found.dtype
    if not fits or tuple(out.example.shape) != tuple(found.example.shape):
        return refuse(frame, f"numpy.{name} into an array of other sizes or another dtype")
    out.write(frame, found.tensor)
    array: ArrayValue = out
    return array


def result(tensor: AbstractTensor) -> ArrayValue:
    """What a function gives: a number where no dims are left."""
    return ArrayValue(tensor, scalar=tensor.example.ndim == 0)
