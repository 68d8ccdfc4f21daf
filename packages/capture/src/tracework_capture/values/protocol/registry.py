"""Tables that upper storeys fill while the package is imported, and lower ones read afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Row = TypeVar("Row")


class Registry(dict[Key, Row], Generic[Key, Row]):
    """key -> row. A second row for a key, or a row after the table was sealed, is an error."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.is_sealed = False
        REGISTRIES.append(self)

    def __setitem__(self, key: Key, row: Row) -> None:
        if self.is_sealed:
            raise RuntimeError(f"{self.name} is sealed: no row for {key!r} can be added")
        if key in self:
            raise RuntimeError(f"{self.name} has two rows for {key!r}")
        super().__setitem__(key, row)

    def add(self, rows: Mapping[Key, Row]) -> None:
        """Adds rows, key -> row."""
        for key, row in rows.items():
            self[key] = row

    def seal(self) -> None:
        """From here on the table is only read."""
        self.is_sealed = True


REGISTRIES: list[Registry[Any, Any]] = []
"""All of them, for values/__init__.py, which seals them."""
