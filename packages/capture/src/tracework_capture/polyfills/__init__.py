"""Polyfills: plain Python that is traced in place of functions of C, or of Python that tracing cannot follow.

A polyfill takes the arguments of the original and gives what it gives, called by anybody: it is tested against the original, eagerly. It
knows torch, NumPy and arrays.py, and no frame and no value. One is added by a function in a file of this package, which is imported below:

    @polyfill(numpy.trace)
    def trace(a, offset=0, axis1=0, axis2=1, dtype=None):
        return numpy.asarray(a).diagonal(offset, axis1, axis2).sum(-1, dtype)

What asks things that are known while tracing in a way that tracing cannot follow (`ufunc.resolve_dtypes`) is a function of its own, marked
`@folded`: it runs while tracing, on constants. `raise NotComputed(text)` leaves the call to the original: the graph breaks before it. Of the
globals of this package, the defaults of its functions and what its code reads of modules nothing is guarded. Its frames count for no limit,
and no traceback and no place in a message shows them. A function that a row of CALLS hands on to, under conditions, needs no mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

__all__ = ["FOLDED", "POLYFILLS", "NotComputed", "folded", "is_fixed", "is_polyfill", "polyfill"]

Function = TypeVar("Function", bound=Callable[..., Any])

POLYFILLS: dict[Any, Callable[..., Any]] = {}
"""Function or class -> what is traced in its place; rows of CALLS, which takes one for each."""
FOLDED: set[Callable[..., Any]] = set()
"""Functions of polyfills that are called while tracing."""


class NotComputed(Exception):
    """The polyfill does not do what is asked; the text says what that is."""

    reason: ClassVar[str] = "call_unknown"
    """The id in BREAK_REASONS of the break that it is."""


def polyfill(*originals: Any) -> Callable[[Function], Function]:
    """Marks what is traced in place of functions or classes; None stands for what this version of a library does not have."""

    def add(function: Function) -> Function:
        POLYFILLS.update((original, function) for original in originals if original is not None)
        return function

    return add


def folded(function: Function) -> Function:
    """Marks a pure function that is called while tracing, where all of its arguments must be known."""
    FOLDED.add(function)
    return function


def is_polyfill(globals_: dict[str, Any]) -> bool:
    """Whether these are the globals of a polyfill, as a frame or a function has them."""
    return str(globals_.get("__name__")).startswith(__name__)


def is_fixed(globals_: dict[str, Any]) -> bool:
    """Whether nobody changes what is there, nor the functions that have it as globals: those of polyfills, and of NumPy's own Python,
    which stands for C, too."""
    return str(globals_.get("__name__")).startswith((__name__, "numpy."))


from . import collectives, numpy_functions, torch_functions, torch_numbers  # noqa: E402, F401  # fills the tables
