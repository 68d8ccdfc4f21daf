"""`%` of texts."""

from __future__ import annotations

import operator
import re

from ..number.deferred import deferred_percent
from ..number.symint import SymNumber
from ..protocol.constant import TEXT_RULES, ConstantValue, fold, fold_plain
from ..protocol.value import Frame, Value, builtin_part
from .mapping import DictValue
from .sequence import SequenceValue, TupleValue
from .str_repr import shown_items
from .text import UnspecialisedText


def conversions(pattern: str, count: int) -> list[str | None]:
    """What the pattern makes of each of so many values: the letters of its conversions; None where that is not known."""
    if "*" in pattern or "%(" in pattern:
        return [None] * count
    return (_CONVERSION.findall(pattern.replace("%%", "")) + [None] * count)[:count]


_CONVERSION = re.compile(r"%[-#0 +\d.]*[hlL]?([a-zA-Z])")


def percent_text(frame: Frame, pattern: str, value: Value) -> Value | None:
    """`pattern % value` where value is a symbolic size, a tensor or a number out of data, or a tuple with some in it; None for other values."""
    named = by_names(frame, pattern, value)
    if named is not None:
        return percent_text(frame, *named) or fold(frame, operator.mod, [ConstantValue(named[0]), named[1]])
    part = builtin_part(value)
    parts = part.all_items(frame) if isinstance(part, TupleValue) else [value]
    parts = [converted(frame, kind, part) for kind, part in zip(conversions(pattern, len(parts)), parts)]
    if not all(isinstance(p, SymNumber) or p.is_constant() for p in parts):
        return deferred_percent(pattern, parts)
    hints = tuple(frame.symbols.hint(p.expr) if isinstance(p, SymNumber) else p.constant() for p in parts)

    def settle() -> None:
        for part in parts:
            if isinstance(part, SymNumber):
                part.specialise(frame)

    found = fold_plain(frame, operator.mod, pattern, hints)
    return UnspecialisedText(
        found, settle, lambda emit: f"{emit.literal(pattern)} % ({''.join(emit.load(p) + ', ' for p in parts)})"
    )


def converted(frame: Frame, kind: str | None, value: Value) -> Value:
    """What a conversion of this letter, None where that is not known, takes a value for."""
    if kind == "s" and isinstance(value, (SequenceValue, DictValue)) and not value.is_constant():
        return shown_items(frame, value) or value
    return value.conversion_operand(frame, kind)


def by_names(frame: Frame, pattern: str, value: Value) -> tuple[str, TupleValue] | None:
    """(pattern, tuple) of what a pattern with names takes out of a dict; None for other patterns and values."""
    if not isinstance(value, DictValue) or value.owner is not None or "%" in _NAMED.sub("", pattern):
        return None
    names = [name for name, conversion in _NAMED.findall(pattern) if conversion]
    if not names:
        return None
    found = [value.getitem(frame, ConstantValue(name)) for name in names]
    return _NAMED.sub(lambda match: f"%{match[2] or '%'}", pattern), TupleValue(found)


_NAMED = re.compile(r"%(?:%|\(([^()]*)\)([-#0 +]*\d*(?:\.\d*)?[hlL]?[a-zA-Z]))")


TEXT_RULES["%"] = lambda frame, pattern, args, kwargs: percent_text(frame, pattern, args[0])
