"""id() of objects whose address is not known while tracing: of tensors, and of what the traced program makes.

Such a number says which object it is of as long as that lives: it is compared, and is a key, by that. All else, arithmetic and text, is
done when the graph has run. Two numbers are different ones only where both objects lived at one time: an object that is made later may
lie where an earlier one did.
"""

from __future__ import annotations

from typing import Any

from ..number.deferred import DeferredValue
from ..protocol.constant import ConstantValue
from ..protocol.finalizers import is_held
from ..protocol.keys import LOWEST_ADDRESS, NumberKey
from ..protocol.operators import distinguish
from ..protocol.value import NEW, Frame, Value


class IdentityNumber(DeferredValue):
    """id(of)"""

    def __init__(self, of: Value, place: tuple[Any, ...]) -> None:
        super().__init__(int, lambda emit: f"{emit.const(id)}({emit.load(of)})", frozenset((place,)))
        self.of = of

    def describe(self) -> str:
        return f"id() of {self.of.describe()}"

    def hash_key(self, frame: Frame) -> Any:
        return NumberKey(self)

    def same_object(self, other: Value) -> bool | None:
        return True if self is other else None if other.python_type() is int else False

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not (other.is_constant() or isinstance(other, IdentityNumber)):
            return self.needed(frame)
        return ConstantValue(self.equals(frame, other) == (op == "=="))

    def equals(self, frame: Frame, other: Value) -> bool:
        """Whether it is the number that `other` stands for: another of its kind, or one that is known."""
        if isinstance(other, IdentityNumber):
            return self.of is other.of or self.lives_beside(frame, other)
        number = other.constant()
        if not isinstance(number, (int, float)) or number < LOWEST_ADDRESS:
            return False
        return self.known(frame) == number

    def lives_beside(self, frame: Frame, other: IdentityNumber) -> bool:
        """False, where both objects are alive at one time."""
        both_before = self.of.mutability is not NEW and other.of.mutability is not NEW
        if not both_before and not all(is_alive(frame, number.of) for number in (self, other)):
            return self.needed(frame)
        distinguish(frame, self.of, other.of)
        return False

    def known(self, frame: Frame) -> int:
        """The number itself, where the object was there before: which it is is guarded."""
        obj = getattr(self.of, "obj", None)
        if obj is None or self.of.source is None:
            return self.needed(frame)
        frame.guard("IDENTITY", self.of.source, obj)
        return id(obj)


def is_alive(frame: Frame, value: Value) -> bool:
    """Whether an object surely lives: it was there before, or a frame holds it, itself or in what the traced program made."""
    if is_held(frame, value):
        return True
    open_: list[Value] = []
    seen: set[int] = set()
    above: Frame | None = frame
    while above is not None:
        cells = (cell._contents for cell in above.cells.values() if hasattr(cell, "_contents"))
        open_ += [held for held in (*above.stack, *dict.values(above.locals), *cells) if isinstance(held, Value)]
        above = above.parent
    while open_:
        held = open_.pop()
        if held is value:
            return True
        if id(held) not in seen and held.source is None:
            seen.add(id(held))
            open_ += [part for part in held.held() if isinstance(part, Value)]
    return False
