"""What can be set of torch.compile, by release of torch: the rows of torch_names.txt, which tools/torch_names.py writes; nothing is imported.

`Row` says what becomes of one of these names here; the tables of rows are torch_options.py, torch_settings.py and torch_logs.py.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InvalidArgument

KINDS = ("option", "dynamo", "compiler", "functorch", "fx", "variable", "log", "name")
"""Options of the compiler, fields of torch._dynamo.config, torch.compiler.config, torch._functorch.config and torch.fx.experimental._config,
environment variables, names of TORCH_LOGS, and public names of torch.compiler."""
COMPUTED: Any = object()
"""The default of a setting that torch computes."""


@dataclass(frozen=True)
class TorchName:
    """One name. what: the literal default of a setting, as text; for a variable the setting it gives. releases: empty for all of them."""

    kind: str
    name: str
    what: str = ""
    releases: tuple[str, ...] = ()

    @property
    def default(self) -> Any:
        """The default of a setting; COMPUTED where it is no literal."""
        return ast.literal_eval(self.what) if self.what else COMPUTED


@functools.cache
def _all() -> Mapping[str, Mapping[str, TorchName]]:
    found: dict[str, dict[str, TorchName]] = {kind: {} for kind in KINDS}
    for line in Path(__file__).with_name("torch_names.txt").read_text().splitlines():
        if not line.startswith("#"):
            kind, name, what, releases = (*line.split("\t"), "", "")[:4]
            found[kind][name] = TorchName(kind, name, what, tuple(releases.split()))
    return found


def torch_names(kind: str) -> Mapping[str, TorchName]:
    """The names of one kind, in all releases that are supported."""
    return _all()[kind]


HONOURED, IGNORED, REFUSED = "honoured", "not needed", "refused"


@dataclass(frozen=True)
class Row:
    """What becomes of one name, or of all that a pattern like "halide.*" means.

    answer: HONOURED, then `target` says by what of ours; IGNORED, it could only change speed, memory or what is printed, or holds in any
    case; REFUSED, it asks for other values, promises something, calls the user's code or writes files, and nothing here does.
    """

    name: str
    answer: str
    target: str = ""
    reason: str = ""


def rows_of(answer: str, groups: Mapping[str, str]) -> list[Row]:
    """Rows from a reason and the names that it holds for."""
    return [Row(name, answer, reason=reason) for reason, names in groups.items() for name in names.split()]


def table_of(rows: Iterable[Row]) -> Mapping[str, Row]:
    """The rows by name. Raises InvalidArgument for a name that has two."""
    table: dict[str, Row] = {}
    for row in rows:
        if row.name in table:
            raise InvalidArgument(f"{row.name!r} has two rows: {table[row.name]} and {row}. Leave one out.")
        table[row.name] = row
    return table


def row_for(table: Mapping[str, Row], name: str) -> Row | None:
    """The row of a name: its own, else that of the longest pattern that means it."""
    if name in table:
        return table[name]
    meaning = [pattern for pattern in table if "*" in pattern and fnmatch.fnmatchcase(name, pattern)]
    return table[max(meaning, key=len)] if meaning else None


def asks(known: TorchName, value: Any) -> bool:
    """Whether a value of a setting asks for something: it differs from torch's default, or, where that is computed, is not false."""
    default = known.default
    return bool(value) if default is COMPUTED else bool(value != default)
