"""Texts of values, as str and repr make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...errors import NotPlain
from ..number.deferred import DeferredValue, deferred_join, deferred_repr
from ..number.floats import FloatValue
from ..number.numpy_ints import NumpyInt
from ..number.symint import SymNumber
from ..protocol.constant import ConstantValue, fold_plain, plain
from ..protocol.kinds import AbstractArray, AbstractTensor
from ..protocol.value import Emitter, Frame, Value
from .mapping import DictValue
from .sequence import ListValue, TupleValue
from .text import UnspecialisedText, joined_text, known_text, text_of_size, text_of_sizes


def shown(frame: Frame, value: Value, fn: Callable[[object], str]) -> Value:
    """str(value) or repr(value), as fn is: what its class says; constants now; what numbers and data of the graph show, later."""
    found = value.own_text(frame, fn)
    if found is not None:
        return found
    if isinstance(value, UnspecialisedText) and fn is str:
        return value
    if isinstance(value, DeferredValue):
        return value if fn is str is value.python_type() else deferred_repr(frame, value, fn)
    if isinstance(value, NumpyInt) and is_unspecialised_number(value):  # which plain() fixes
        return text_of_size(frame, fn, value)
    try:
        return ConstantValue(fold_plain(frame, fn, plain(value)))
    except NotPlain:
        pass
    if is_unspecialised_number(value):
        return text_of_size(frame, fn, value)
    if isinstance(value, TupleValue) and value.cls in (tuple, torch.Size) and all_sizes(value):
        known = all(frame.symbols.has_hint(item.expr) for item in value.items if isinstance(item, SymNumber))
        return text_of_sizes(frame, fn, value) if known else SizesText(fn, value)
    if isinstance(value, (AbstractTensor, AbstractArray)):  # what it holds is another call's data, also where the tensor is known
        return value.data_text(frame, fn) or known_or_break(frame, value, fn)
    try:
        return ConstantValue(fold_plain(frame, fn, value.real()))
    except LookupError:
        return shown_items(frame, value) or known_or_break(frame, value, fn)


def known_or_break(frame: Frame, value: Value, fn: Callable[[object], str]) -> Value:
    """str(value) or repr(value), as fn is, where all of it is known; else a graph break."""
    try:
        return ConstantValue(fn(plain(value)))
    except NotPlain as missing:
        if missing.args[0].read_rest(frame):
            return known_or_break(frame, value, fn)
        reason = "tensor_to_python" if isinstance(value, AbstractTensor) else "value_not_known"
        return frame.break_graph(reason, f"text of {value.describe()}")


BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}


def shown_items(frame: Frame, value: Value) -> Value | None:
    """The text of a list, tuple or dict, whose items' texts their classes make; dots inside of its own. None for other values."""
    if not isinstance(value, (ListValue, TupleValue, DictValue)) or value.python_type() not in BRACKETS:
        return None
    opened, closed = BRACKETS[value.python_type()]
    if any(outer is value for outer in frame.queries.shown):
        return ConstantValue(f"{opened}...{closed}")
    frame.queries.shown.append(value)
    try:
        items = value.all_items(frame)
        parts = list(texts_between(frame, value, items))
    finally:
        frame.queries.shown.pop()
    if [held for *_, held in rows_of(value, value.all_items(frame))] != [held for *_, held in rows_of(value, items)]:
        return frame.break_graph("value_not_known", f"text of {value.describe()}, which changes while it is written")
    parts = [ConstantValue(opened), *parts, ConstantValue(",)" if value.python_type() is tuple and len(items) == 1 else closed)]
    if all(map(known_text, parts)):
        return joined_text(parts)
    return deferred_join(parts) if all(known_text(part) or isinstance(part, DeferredValue) for part in parts) else None


def rows_of(value: Value, items: list[Any]) -> list[Any]:
    """Each item of a list or tuple as a row of one, each of a dict as key and value."""
    return items if isinstance(value, DictValue) else [(item,) for item in items]


def texts_between(frame: Frame, value: Value, items: list[Any]) -> Iterator[Value]:
    """The texts that stand between the brackets."""
    for number, row in enumerate(rows_of(value, items)):
        if number:
            yield ConstantValue(", ")
        for place, part in enumerate(row):
            if place:
                yield ConstantValue(": ")
            yield shown(frame, part, repr)


def is_unspecialised_number(value: Value) -> bool:
    """Whether the value is a number that is not fixed."""
    if isinstance(value, NumpyInt):
        return not value.is_constant()
    return isinstance(value, SymNumber) or (isinstance(value, FloatValue) and not value.known)


def all_sizes(value: TupleValue) -> bool:
    """True for a tuple of numbers, some of them symbols."""
    return all(isinstance(item, SymNumber) or (type(item) is ConstantValue and type(item.obj) is int) for item in value.items)


class SizesText(Value):
    """The text of sizes that depend on data, written when the graph has run: messages of checks that hold never ask for it."""

    cls = str

    def __init__(self, fn: Callable[..., str], sizes: TupleValue) -> None:
        super().__init__(None)
        self.fn = fn
        self.sizes = sizes

    def describe(self) -> str:
        return f"text of {self.sizes.describe()}"

    def as_plain(self) -> Any:
        raise NotPlain(self)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        return frame.break_graph("value_not_known", self.describe())

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(self.fn)}({emit.load(self.sizes)})"
