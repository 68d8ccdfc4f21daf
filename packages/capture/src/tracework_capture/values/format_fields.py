"""str.format: what a template looks up in its arguments (`{0.ndim}`, `{x[key]}`) is looked up as the traced program would do it."""

from __future__ import annotations

import string

from .constant import ConstantValue


def looked_up(frame, template, args, kwargs):
    """(template, arguments) with the lookups done and the fields numbered; None where there are none, or where the template is broken."""
    if not any("." in name or "[" in name for name in names_in(template)):
        return None
    fields = Fields(frame, args, kwargs)
    written = fields.rewrite(template)
    return None if written is None else (written, fields.values)


def names_in(template):
    """The field names of a template and of the specifications in it."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return []
    found = [name for _, name, _, _ in parts if name is not None]
    return found + [inner for _, name, spec, _ in parts if name is not None and spec for inner in names_in(spec)]


class Fields:
    """The arguments of one call of format, and what its fields gave so far."""

    def __init__(self, frame, args, kwargs):
        self.frame, self.args, self.kwargs = frame, args, kwargs
        self.values = []
        self.count = 0
        self.numbered = None  # whether the fields say which argument they take

    def rewrite(self, template):
        """The template with numbered fields; None where plain Python would raise."""
        text = ""
        for literal, name, spec, conversion in string.Formatter().parse(template):
            text += literal.replace("{", "{{").replace("}", "}}")
            if name is None:
                continue
            number = self.field(name)
            inner = self.rewrite(spec) if number is not None else None
            if inner is None:
                return None
            text += "{" + str(number) + (f"!{conversion}" if conversion else "") + (f":{inner}" if inner else "") + "}"
        return text

    def field(self, name):
        """The number of what a field gives."""
        first, lookups = string._string.formatter_field_name_split(name)
        value = self.argument(first)
        if value is None:
            return None
        for is_attribute, key in lookups:
            value = value.getattr(self.frame, key) if is_attribute else value.getitem(self.frame, ConstantValue(key))
        self.values.append(value)
        return len(self.values) - 1

    def argument(self, first):
        """The argument that a field names; None where there is none."""
        if type(first) is str and first:
            return self.kwargs.get(first)
        numbered = first != ""
        if self.numbered not in (None, numbered):
            return None
        self.numbered = numbered
        index = first if numbered else self.count
        self.count += not numbered
        return self.args[index] if index < len(self.args) else None
