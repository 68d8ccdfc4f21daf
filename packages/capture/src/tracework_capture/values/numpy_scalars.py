"""NumPy's numbers: constants as Python's own are, and functions of NumPy that are computed while tracing when all arguments are known.

A graph gets the Python number, which torch treats as it treats NumPy's. Arrays are not known values: who makes one breaks the graph.
"""

from __future__ import annotations

import sys

from .constant import NUMPY_NUMBERS, NotPlain, fold_literal, plain

numpy = sys.modules.get("numpy")  # torch loads it where it is installed

ARRAY_TYPES = (numpy.ndarray,) if numpy is not None else ()

_FUNCTIONS = (
    "prod sum max min amax amin mean median std var round around clip argmax argmin all any dot ndim size ptp average isclose "
    "allclose array_equal interp percentile quantile isscalar real imag angle nan_to_num count_nonzero searchsorted finfo iinfo"
)


def known_row(function):
    """A pure function: computed now when every argument is known, a graph break otherwise."""

    def evaluates(frame, args, kwargs):
        try:
            given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
        except NotPlain as missing:
            return frame.break_graph("numpy_array", f"numpy.{function.__name__} of {missing.args[0].describe()}")
        return fold_literal(frame, function, *given, **named)

    return evaluates


def rows():
    """Function or class -> row."""
    if numpy is None:
        return {}
    functions = [getattr(numpy, name) for name in _FUNCTIONS.split()]
    ufuncs = {u for u in vars(numpy).values() if isinstance(u, numpy.ufunc)}
    return {function: known_row(function) for function in (*functions, *ufuncs, *NUMPY_NUMBERS)}


NUMPY_ROWS = rows()
INFO_TYPES = (numpy.finfo, numpy.iinfo) if numpy is not None else ()
FUNCTION_TYPES = (numpy.ufunc, type(numpy.prod)) if numpy is not None else ()
"""What NumPy's functions in C are instances of."""
