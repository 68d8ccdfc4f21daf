"""Texts that are known in this call but need not be fixed: those made of symbolic sizes, and arguments that change between calls.

Passing such a text on, printing it or returning it asks for nothing. What needs its characters settles it, and the entry then holds
for that text only; tests that a helper steers by (equality, startswith, `in`) guard their answer instead of the whole text.
"""

from __future__ import annotations

import operator
import re

from ...guards.kinds import TEXT_TESTS
from ...sources import Source
from ..number.symint import SymNumber
from ..protocol.constant import ConstantValue, fold, fold_plain, plain
from ..protocol.open_constant import OpenConstant
from ..protocol.value import builtin_part

__all__ = [
    "OpenText",
    "changing_text",
    "conversions",
    "joined_text",
    "known_text",
    "percent_text",
    "text_of_size",
    "text_of_sizes",
]


class OpenText(OpenConstant):
    """A str. `write(emit)` is an expression that makes it again."""

    def __init__(self, text, settle, write, source=None):
        super().__init__(text, settle, source)
        self.write = write

    @property
    def text(self):
        """What it is in this call."""
        return self.obj

    def describe(self):
        return f"text {self.text!r}"

    def reload(self, emit):
        return self.write(emit)

    def binary(self, frame, op, other, reverse=False):
        if op in ("+", "+=") and known_text(other):
            return joined_text([other, self] if reverse else [self, other])
        return self.known().binary(frame, op, other, reverse)


class ChangingText(OpenText):
    """A str at `source` that had another value in an earlier call."""

    def __init__(self, frame, text, source):
        super().__init__(text, lambda: frame.guard("CONSTANT", source, text), None, source)

    def test(self, frame, name, operand):
        """The answer of one of TEXT_TESTS, guarded."""
        answer = TEXT_TESTS[name](self.text, operand)
        if self.settled is None:
            frame.guard("TEXT", self.source, (name, operand, answer))
        return ConstantValue(answer)

    def compare(self, frame, op, other):
        if op in TEXT_TESTS and other.is_constant() and type(other.constant()) is str:
            return self.test(frame, op, other.constant())
        return self.known().compare(frame, op, other)

    def contains(self, frame, item):
        if item.is_constant() and type(item.constant()) is str:
            return self.test(frame, "contains", item.constant())
        return self.known().contains(frame, item)

    def call_method(self, frame, name, args, kwargs):
        if name in TEXT_TESTS and len(args) == 1 and not kwargs and args[0].is_constant() and type(args[0].constant()) is str:
            return self.test(frame, name, args[0].constant())
        return self.known().call_method(frame, name, args, kwargs)

    def truth(self, frame):
        return not self.test(frame, "==", "").constant()


def changing_text(frame, text, source: Source):
    """A ChangingText for an argument that had another value before, else None."""
    root = frame.root
    if root.options.dynamic is False or not root.history.number_changed(str(source), text):
        return None
    frame.guard("TYPE", source, str)
    return ChangingText(frame, text, source)


def text_of_size(frame, fn, size, *args):
    """fn(size, *args) as a text, of a SymNumber or a float that changes: str, repr, or format with a specification."""
    hint = frame.symbols.hint(size.expr) if isinstance(size, SymNumber) else size.hint
    extra = "".join(f", {a!r}" for a in args)
    text = fold_plain(frame, fn, hint, *args)
    return OpenText(text, lambda: size.specialise(frame), lambda emit: f"{emit.const(fn)}({emit.load(size)}{extra})")


def conversions(pattern, count):
    """What the pattern makes of each of so many values: the letters of its conversions; None where that is not known."""
    if "*" in pattern or "%(" in pattern:
        return [None] * count
    return (_CONVERSION.findall(pattern.replace("%%", "")) + [None] * count)[:count]


_CONVERSION = re.compile(r"%[-#0 +\d.]*[hlL]?([a-zA-Z])")


def percent_text(frame, pattern, value):
    """`pattern % value` where value is a symbolic size, a tensor or a number out of data, or a tuple with some in it; None for other values."""
    from ..number.late_values import late_percent
    from ..torch.texts_of_data import converted
    from .sequence import TupleValue

    named = by_names(frame, pattern, value)
    if named is not None:
        return percent_text(frame, *named) or fold(frame, operator.mod, [ConstantValue(named[0]), named[1]])
    part = builtin_part(value)
    parts = part.all_items(frame) if isinstance(part, TupleValue) else [value]
    parts = [converted(frame, kind, part) for kind, part in zip(conversions(pattern, len(parts)), parts)]
    if not all(isinstance(p, SymNumber) or p.is_constant() for p in parts):
        return late_percent(pattern, parts)
    hints = tuple(frame.symbols.hint(p.expr) if isinstance(p, SymNumber) else p.constant() for p in parts)

    def settle():
        for part in parts:
            if isinstance(part, SymNumber):
                part.specialise(frame)

    found = fold_plain(frame, operator.mod, pattern, hints)
    return OpenText(found, settle, lambda emit: f"{emit.literal(pattern)} % ({''.join(emit.load(p) + ', ' for p in parts)})")


def by_names(frame, pattern, value):
    """(pattern, tuple) of what a pattern with names takes out of a dict; None for other patterns and values."""
    from .mapping import DictValue
    from .sequence import TupleValue

    if not isinstance(value, DictValue) or value.owner is not None or "%" in _NAMED.sub("", pattern):
        return None
    names = [name for name, conversion in _NAMED.findall(pattern) if conversion]
    if not names:
        return None
    found = [value.getitem(frame, ConstantValue(name)) for name in names]
    return _NAMED.sub(lambda match: f"%{match[2] or '%'}", pattern), TupleValue(found)


_NAMED = re.compile(r"%(?:%|\(([^()]*)\)([-#0 +]*\d*(?:\.\d*)?[hlL]?[a-zA-Z]))")


def text_of_sizes(frame, fn, sizes):
    """fn(sizes) as a text, of a tuple or torch.Size with symbols in it."""
    items = sizes.items
    hints = sizes.cls(frame.symbols.hint(i.expr) if isinstance(i, SymNumber) else i.constant() for i in items)

    def settle():
        for item in items:
            if isinstance(item, SymNumber):
                item.specialise(frame)

    return OpenText(fn(hints), settle, lambda emit: f"{emit.const(fn)}({emit.load(sizes)})")


def known_text(value):
    """Whether the characters of a str Value are known in this call."""
    return isinstance(value, OpenText) or (value.is_constant() and type(value.constant()) is str)


def joined_text(parts):
    """The parts, one after another, as one text."""
    if not any(isinstance(p, OpenText) for p in parts):
        return ConstantValue("".join(plain(p) for p in parts))

    def settle():
        for part in parts:
            plain(part)

    text = "".join(p.text if isinstance(p, OpenText) else p.constant() for p in parts)
    return OpenText(text, settle, lambda emit: f"''.join([{', '.join(emit.load(p) for p in parts)}])")
