"""A guard on what Python decides by a formula of numbers."""

from __future__ import annotations

import functools
from typing import Any

from ..formulas import ERRORS, formula_function
from .portable import Predicate
from .store import NotPortable

_KINDS: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, complex)}


class Answer(Predicate):
    """The formula has the value that it had while tracing."""

    def __init__(self, text: str, names: str, kinds: tuple[type, ...], expected: bool) -> None:
        self._asked = text, names
        self.function, self.kinds, self.expected = formula_function(text, names), kinds, expected
        self.__doc__ = f"{text} is {expected}"

    def __call__(self, *numbers: Any) -> bool:
        try:
            return tuple(map(type, numbers)) == self.kinds and self.function(*numbers) == self.expected
        except ERRORS:
            return False

    def digest(self) -> list[Any]:
        kinds = [kind.__name__ for kind in self.kinds]
        if any(_KINDS.get(kind.__name__) is not kind for kind in self.kinds):
            raise NotPortable(f"a formula of {', '.join(kinds)}")
        return [*self._asked, kinds, self.expected]

    @classmethod
    def of(cls, found: Any, digest: list[Any]) -> Answer:
        text, names, kinds, expected = digest
        return answer_to(text, names, tuple(_KINDS[kind] for kind in kinds), expected)


answer_to = functools.lru_cache(maxsize=1000, typed=True)(Answer)  # one object for each, so that a guard is recorded once
