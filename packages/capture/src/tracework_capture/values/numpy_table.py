"""NUMPY_FUNCTIONS: functions of NumPy and methods of arrays that functions of torch compute.

A handler has NumPy's parameters behind `frame`; values that are not given are plain Python objects. A call with other parameters, and
whatever a handler does not compute as NumPy does, breaks the graph.
"""

from __future__ import annotations

import functools
import inspect

from ..arrays import numpy
from .constant import NotPlain, force_plain, plain
from .numpy_array import (
    ARRAY_METHODS,
    ArrayValue,
    refuse,
    watch_errors,
)
from .numpy_ufuncs import known_result
from .sequence import SequenceValue
from .symint import SymNumber
from .value import Value

NUMPY_FUNCTIONS = {}
"""Function of NumPy -> fn(frame, args, kwargs)."""


def function(*names, method=None, pure=True):
    """Adds a handler for functions of numpy of these names, and for a method; pure ones are computed now when all is known."""

    def add(handler):
        for name in names:
            found = functools.reduce(getattr, name.split("."), numpy)
            NUMPY_FUNCTIONS[found] = function_row(handler, found if pure else None, name)
        if method is not None:
            ARRAY_METHODS[method] = function_row(handler, None, method)
        return handler

    return add


def function_row(handler, known, name):
    """The row of a handler."""
    signature = inspect.signature(handler)

    def computes(frame, args, kwargs):
        if known is not None:
            try:
                given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
            except NotPlain:
                pass
            else:
                return known_result(frame, known, given, named)
        try:
            signature.bind(frame, *args, **kwargs)
        except TypeError:
            return refuse(frame, f"numpy.{name} with these arguments")
        watch_errors(frame)
        return handler(frame, *args, **kwargs)

    return computes


def known(frame, value):
    """The plain object of an argument, given or not."""
    return force_plain(frame, value) if isinstance(value, Value) else value


def call(frame, fn, *args, **kwargs):
    """A node."""
    return frame.graph.call(frame, fn, args, kwargs)


def result(tensor):
    """What a function gives: a number where no dims are left."""
    return ArrayValue(tensor, scalar=tensor.example.ndim == 0)


def in_c_order(frame, name, arrays, dims):
    """Results of several dims lie in memory as the arguments do; torch does the same for those in C order."""
    if dims > 1 and not all(a.example.is_contiguous() for a in arrays):
        refuse(frame, f"numpy.{name} of arrays that are not in C order")


def axes_of(frame, axis, ndim):
    """Normalised axes, or None for all of them."""
    axis = known(frame, axis)
    if axis is None:
        return None
    found = axis if isinstance(axis, tuple) else (axis,)
    if not all(type(a) is int and -ndim <= a < ndim for a in found):
        return refuse(frame, f"axis {axis} of an array of {ndim} dims")
    return tuple(a % ndim for a in found)


def one_axis(frame, axis, ndim):
    found = axes_of(frame, axis, ndim)
    return found[0] if found is not None and len(found) == 1 else refuse(frame, "several axes")


def sizes_of(frame, shape):
    """The argument of a shape: an int, or a sequence of ints; sizes that change stay so."""
    parts = shape.all_items(frame) if isinstance(shape, SequenceValue) else [shape]
    return tuple(p if isinstance(p, SymNumber) else int(force_plain(frame, p)) for p in parts)
