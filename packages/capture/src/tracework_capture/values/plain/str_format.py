"""str.format: what a template looks up in its arguments (`{0.ndim}`, `{x[key]}`) is looked up as the traced program would do it, and objects
and tensors are asked for their texts as it would ask them."""

from __future__ import annotations

import _string
import string
from typing import Any

from ...sources import Const
from ..number.deferred import deferred_format
from ..protocol.constant import TEXT_RULES, ConstantValue
from ..protocol.kinds import AbstractArray, AbstractInstance, AbstractTensor
from ..protocol.value import Frame, Value

CONVERSIONS = {"s": str, "r": repr, "a": ascii}


def looked_up(frame: Frame, template: str, args: list[Value], kwargs: dict[str, Value]) -> tuple[str, list[Value]] | None:
    """(template, arguments) with the lookups done, texts in the place of objects and tensors, and the fields numbered; None where there is
    nothing of it to do, or where the template is broken."""
    names = names_in(template)
    if (
        not names
        or not any("." in name or "[" in name for name in names)
        and not any(map(has_own_text, (*args, *kwargs.values())))
    ):
        return None
    fields = Fields(frame, args, kwargs)
    written = fields.rewrite(template)
    return None if written is None else (written, fields.values)


def has_own_text(value: Value) -> bool:
    """Whether the value says itself what its text is, when the program runs or by code of its own."""
    asked = isinstance(value, (AbstractArray, AbstractInstance, AbstractTensor)) or value.python_type() in (list, tuple, dict)
    return asked and not value.is_constant()


def names_in(template: str) -> list[str]:
    """The field names of a template and of the specifications in it."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return []
    found = [name for _, name, _, _ in parts if name is not None]
    return found + [inner for _, name, spec, _ in parts if name is not None and spec for inner in names_in(spec)]


class Fields:
    """The arguments of one call of format, and what its fields gave so far."""

    def __init__(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> None:
        self.frame, self.args, self.kwargs = frame, args, kwargs
        self.values: list[Value] = []
        self.count = 0
        self.numbered: bool | None = None  # whether the fields say which argument they take

    def rewrite(self, template: str) -> str | None:
        """The template with numbered fields; None where plain Python would raise."""
        text = ""
        for literal, name, spec, conversion in string.Formatter().parse(template):
            text += literal.replace("{", "{{").replace("}", "}}")
            if name is None:
                continue
            number = self.field(name)
            inner = None if number is None else self.rewrite(spec or "")
            if number is None or inner is None:
                return None
            if not conversion:
                self.values[number] = self.values[number].format_operand(self.frame)
            if has_own_text(self.values[number]) and "{" not in inner:
                self.values[number], conversion, inner = self.text(self.values[number], conversion, inner), None, ""
            text += "{" + str(number) + (f"!{conversion}" if conversion else "") + (f":{inner}" if inner else "") + "}"
        return text

    def text(self, value: Value, conversion: str | None, spec: str) -> Value:
        """What a field makes of a value that is asked for its text."""

        def called(function: Any, *given: Value) -> Value:
            return self.frame.wrap(function, Const(function, function.__name__)).call(self.frame, list(given), {})

        if conversion:
            value = called(CONVERSIONS[conversion], value)
        return value if conversion and not spec else called(format, value, ConstantValue(spec))

    def field(self, name: str) -> int | None:
        """The number of what a field gives."""
        first, lookups = _string.formatter_field_name_split(name)
        value = self.argument(first)
        if value is None:
            return None
        for is_attribute, key in lookups:
            value = value.getattr(self.frame, key) if is_attribute else value.getitem(self.frame, ConstantValue(key))
        self.values.append(value)
        return len(self.values) - 1

    def argument(self, first: int | str) -> Value | None:
        """The argument that a field names; None where there is none."""
        if type(first) is str and first:
            return self.kwargs.get(first)
        numbered = type(first) is int
        if self.numbered not in (None, numbered):
            return None
        self.numbered = numbered
        index = first if type(first) is int else self.count
        self.count += not numbered
        return self.args[index] if index < len(self.args) else None


def format_(frame: Frame, template: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """template.format(*args, **kwargs); None where it follows from its arguments alone."""
    found = looked_up(frame, template, args, kwargs)
    if found is not None:
        return ConstantValue(found[0]).call_method(frame, "format", found[1], {})
    return deferred_format(template, args, kwargs)


TEXT_RULES["format"] = format_
