"""Fractions that the program was given and that change from call to call."""

from __future__ import annotations

from fractions import Fraction

from ...sources import Attr, Source
from ..protocol.operators import binary
from ..protocol.unspecialised import UnspecialisedConstant
from ..protocol.value import Emitter, Frame, Value
from ..protocol.wraps import changes_in

PARTS = ("numerator", "denominator")


class UnspecialisedFraction(UnspecialisedConstant):
    """Open where the program asks for its two ints, or makes a float of it, which is their quotient; all else needs the fraction."""

    description = "a fraction that changes"

    def __init__(self, frame: Frame, number: Fraction, source: Source) -> None:
        super().__init__(number, lambda: frame.guard("CONSTANT", source, number), source)
        self.parts = {name: frame.wrap(getattr(number, name), Attr(source, name)) for name in PARTS}

    def getattr(self, frame: Frame, name: str) -> Value:
        return self.parts[name] if name in PARTS else self.known().getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__float__" and not args and not kwargs:
            return binary(frame, "/", *self.parts.values())
        return self.known().call_method(frame, name, args, kwargs)

    def reload(self, emit: Emitter) -> str:
        return emit.source(self.source)


@changes_in(Fraction)
def changing_fraction(frame: Frame, number: Fraction, source: Source) -> UnspecialisedFraction | None:
    """The value of a fraction that was another one in an earlier capture; None when it stays a constant."""
    ints = [(Attr(source, name), getattr(number, name)) for name in PARTS]
    if any(type(part) is not int for _, part in ints):
        return frame.break_graph("operation_unknown", "a fraction of numbers of another kind, whose operators are their own")
    # both ints are remembered from the first call on, so that those are open that change
    changed = [frame.inputs.changes(place, part) for place, part in ints]
    if frame.options.dynamic is False or not any(changed) or not frame.options.allows_symbolic_sizes:
        return None
    frame.guard("TYPE", source, type(number))
    return UnspecialisedFraction(frame, number, source)
