"""CASES: one small function with tensors for each construct of the language, with the number of graphs that it gives."""

from __future__ import annotations

__all__ = ["CASES", "case"]

CASES: dict[str, tuple[object, int]] = {}


def case(function=None, *, graphs=1):
    """Adds a function f(x) to the table."""
    if function is None:
        return lambda given: case(given, graphs=graphs)
    name = f"{function.__module__.removesuffix('_cases')}: {function.__name__}"
    if name in CASES:
        raise KeyError(f"CASES has two rows for {name}")
    CASES[name] = (function, graphs)
    return function
