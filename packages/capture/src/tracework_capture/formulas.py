"""What Python computes from numbers, as text: `round(s, 2)`, `2 ** k`. Guards, inputs of graphs and tracing evaluate the same text."""

import functools
import math
from collections.abc import Callable
from typing import Any

__all__ = ["ERRORS", "formula_function", "int_of_formula"]

NAMES = {name: getattr(math, name) for name in dir(math) if not name.startswith("_")}
NAMES |= {fn.__name__: fn for fn in (abs, round, int, float, bool, type, min, max, pow, divmod)}
NAMES["float_pow"] = math.pow  # pow() is another function
ERRORS = (ArithmeticError, ValueError, TypeError)
INT_BITS = 62
"""Ints in graphs and in conditions are int64."""


@functools.lru_cache(maxsize=1000)
def formula_function(text: str, names: str) -> Callable[..., Any]:
    """The formula as a function of the numbers that it calls by these names, with commas between them."""
    function: Callable[..., Any] = eval(f"lambda {names}: {text}", {"__builtins__": {}, **NAMES})
    return function


def int_of_formula(text: str, name: str, number: Any) -> int:
    """Its value where that is an int that graphs take. Raises LookupError for others, and what Python raises."""
    found = formula_function(text, name)(number)
    if type(found) is not int or found.bit_length() > INT_BITS:
        raise LookupError(f"{text} is no int of {INT_BITS} bits")
    return found
