"""Sets of code objects by identity that hold none of them: equal code, which Python takes for the same, may be of several functions."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import CodeType


class CodeSet:
    """A set of living code objects."""

    def __init__(self) -> None:
        self._codes: dict[int, weakref.ref[CodeType]] = {}

    def add(self, code: CodeType) -> None:
        """Adds a code object, until it dies."""
        key, codes = id(code), self._codes
        if key not in codes:
            codes[key] = weakref.ref(code, lambda dead: codes.pop(key, None))

    def discard(self, code: CodeType) -> None:
        """Takes it out, if it is in."""
        self._codes.pop(id(code), None)

    def clear(self) -> None:
        """Takes all out."""
        self._codes.clear()

    def __contains__(self, code: CodeType) -> bool:
        return id(code) in self._codes

    def __iter__(self) -> Iterator[CodeType]:
        living = (reference() for reference in list(self._codes.values()))
        return (code for code in living if code is not None)
