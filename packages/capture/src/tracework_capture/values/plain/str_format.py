"""str.format: what a template looks up in its arguments (`{0.ndim}`, `{x[key]}`) is looked up as the traced program would do it, and objects
and tensors are asked for their texts as it would ask them."""

from __future__ import annotations

import _string
import string

from ...polyfills.texts import Parts, filled
from ..number.deferred import deferred_format
from ..protocol.calls import traced
from ..protocol.constant import TEXT_RULES, literal
from ..protocol.kinds import AbstractArray, AbstractInstance, AbstractTensor
from ..protocol.value import Frame, Value
from .mapping import dict_of
from .sequence import TupleValue


def has_own_text(value: Value) -> bool:
    """Whether the value says itself what its text is, when the program runs or by code of its own."""
    asked = isinstance(value, (AbstractArray, AbstractInstance, AbstractTensor)) or value.python_type() in (list, tuple, dict)
    return asked and not value.is_constant()


def parsed(template: str, numbered: list[bool]) -> Parts:
    """The template. `numbered`: of each field so far that names an argument by its place, whether it does so by its own.

    Raises:
        ValueError: plain Python refuses the template.
    """
    parts: list[tuple[str, object]] = []
    for text, name, spec, conversion in string.Formatter().parse(template):
        if name is None:
            parts.append((text, None))
            continue
        first, lookups = _string.formatter_field_name_split(name)
        if first == "" or type(first) is int:
            numbered.append(first == "")
            if len(set(numbered)) > 1:
                raise ValueError(template)
            first = len(numbered) - 1 if first == "" else first
        parts.append((text, (first, tuple(lookups), conversion, parsed(spec or "", numbered))))
    return tuple(parts)


def looks_up(parts: Parts) -> bool:
    """Whether some field asks for an attribute or an item."""
    return any(field is not None and (field[1] or looks_up(field[3])) for _, field in parts)


def format_(frame: Frame, template: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """template.format(*args, **kwargs); None where it follows from its arguments alone."""
    try:
        parts = parsed(template, [])
    except ValueError:
        parts = ()
    if looks_up(parts) or any(field for _, field in parts) and any(map(has_own_text, (*args, *kwargs.values()))):
        return traced(filled)(frame, [literal(frame, parts), TupleValue(args), dict_of(frame, kwargs.items())], {})
    return deferred_format(template, args, kwargs)


TEXT_RULES["format"] = format_
