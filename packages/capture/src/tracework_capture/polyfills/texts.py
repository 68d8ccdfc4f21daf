"""Texts: what str.format makes of its fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Parts = tuple[tuple[str, Any], ...]
"""Of a template: a text, and the field after it as (the argument that it names, what is looked up in that as (whether it is an attribute,
name or key), conversion, Parts of the specification); None where no field follows."""
CONVERSIONS: dict[str, Callable[[object], str]] = {"s": str, "r": repr, "a": ascii}


def filled(parts: Parts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """template.format(*args, **kwargs)"""
    text = ""
    for literal, field in parts:
        if field is None:
            text = f"{text}{literal}"
            continue
        first, lookups, conversion, spec = field
        if type(first) is int and first >= len(args):
            raise IndexError(f"Replacement index {first} out of range for positional args tuple")
        value = args[first] if type(first) is int else kwargs[first]
        for is_attribute, key in lookups:
            value = getattr(value, key) if is_attribute else value[key]
        if conversion:
            value = CONVERSIONS[conversion](value)
        text = f"{text}{literal}{format(value, filled(spec, args, kwargs))}"
    return text
