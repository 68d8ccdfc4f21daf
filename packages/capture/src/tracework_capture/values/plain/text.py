"""Texts that are known in this call but need not be fixed: those made of symbolic sizes, and arguments that change between calls.

Passing such a text on, printing it or returning it asks for nothing. What needs its characters settles it, and the entry then holds
for that text only; tests that a helper steers by (equality, startswith, `in`) guard their answer instead of the whole text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...guards.kinds import TEXT_TESTS
from ...sources import Source
from ..number.symint import SymNumber
from ..protocol.constant import ConstantValue, fold_plain, plain
from ..protocol.unspecialised import UnspecialisedConstant
from ..protocol.value import Emitter, Frame, Value
from ..protocol.wraps import changes_in


class UnspecialisedText(UnspecialisedConstant):
    """A str. `write(emit)` is an expression that makes it again."""

    def __init__(
        self, text: str, settle: Callable[[], object], write: Callable[[Emitter], str] | None, source: Any = None
    ) -> None:
        super().__init__(text, settle, source)
        self.write = write

    @property
    def text(self) -> str:
        """What it is in this call."""
        text: str = self.obj
        return text

    def describe(self) -> str:
        return f"text {self.text!r}"

    def reload(self, emit: Emitter) -> str:
        assert self.write is not None  # what has none has a source
        return self.write(emit)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if op in ("+", "+=") and known_text(other):
            return joined_text([other, self] if reverse else [self, other])
        return self.known().binary(frame, op, other, reverse)


class ChangingText(UnspecialisedText):
    """A str at `source` that had another value in an earlier call."""

    def __init__(self, frame: Frame, text: str, source: Source) -> None:
        super().__init__(text, lambda: frame.guard("CONSTANT", source, text), None, source)

    def test(self, frame: Frame, name: str, operand: str) -> ConstantValue:
        """The answer of one of TEXT_TESTS, guarded."""
        answer = TEXT_TESTS[name](self.text, operand)
        if self.settled is None:
            frame.guard("TEXT", self.source, (name, operand, answer))
        return ConstantValue(answer)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if op in TEXT_TESTS and other.is_constant() and type(other.constant()) is str:
            return self.test(frame, op, other.constant())
        return self.known().compare(frame, op, other)

    def contains(self, frame: Frame, item: Value) -> Value:
        if item.is_constant() and type(item.constant()) is str:
            return self.test(frame, "contains", item.constant())
        return self.known().contains(frame, item)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in TEXT_TESTS and len(args) == 1 and not kwargs and args[0].is_constant() and type(args[0].constant()) is str:
            return self.test(frame, name, args[0].constant())
        return self.known().call_method(frame, name, args, kwargs)

    def truth(self, frame: Frame) -> bool:
        return not self.test(frame, "==", "").constant()


@changes_in(str)
def changing_text(frame: Frame, text: str, source: Source) -> ChangingText | None:
    """A ChangingText for an argument that had another value before, else None."""
    if frame.options.dynamic is False or not frame.history.number_changed(str(source), text):
        return None
    frame.guard("TYPE", source, str)
    return ChangingText(frame, text, source)


def text_of_size(frame: Frame, fn: Callable[..., str], size: Any, *args: str) -> UnspecialisedText:
    """fn(size, *args) as a text, of a SymNumber or a float that changes: str, repr, or format with a specification."""
    hint = frame.symbols.hint(size.expr) if isinstance(size, SymNumber) else size.hint
    extra = "".join(f", {a!r}" for a in args)
    text = fold_plain(frame, fn, hint, *args)
    return UnspecialisedText(text, lambda: size.specialise(frame), lambda emit: f"{emit.const(fn)}({emit.load(size)}{extra})")


def text_of_sizes(frame: Frame, fn: Callable[..., str], sizes: Any) -> UnspecialisedText:
    """fn(sizes) as a text, of a tuple or torch.Size with symbols in it."""
    items = sizes.items
    hints = sizes.cls(frame.symbols.hint(i.expr) if isinstance(i, SymNumber) else i.constant() for i in items)

    def settle() -> None:
        for item in items:
            if isinstance(item, SymNumber):
                item.specialise(frame)

    return UnspecialisedText(fn(hints), settle, lambda emit: f"{emit.const(fn)}({emit.load(sizes)})")


def known_text(value: Value) -> bool:
    """Whether the characters of a str Value are known in this call."""
    return isinstance(value, UnspecialisedText) or (value.is_constant() and type(value.constant()) is str)


def joined_text(parts: list[Value]) -> Value:
    """The parts, one after another, as one text."""
    if not any(isinstance(p, UnspecialisedText) for p in parts):
        return ConstantValue("".join(plain(p) for p in parts))

    def settle() -> None:
        for part in parts:
            plain(part)

    text = "".join(p.text if isinstance(p, UnspecialisedText) else p.constant() for p in parts)
    return UnspecialisedText(text, settle, lambda emit: f"''.join([{', '.join(emit.load(p) for p in parts)}])")
