"""LOWERINGS: op name -> rule. A rule takes (low, *args, **kwargs) and returns a value or a tuple of values."""

from collections.abc import Callable
from typing import Any

from ..errors import TableError

Rule = Callable[..., Any]

LOWERINGS: dict[str, Rule] = {}

VIEWS: set[str] = set()
"""Ops whose rules only rearrange indices."""


class Refused(Exception):
    """Raised by a rule that cannot lower these arguments; the text is the reason."""


def lowers(*names: str, view: bool = False) -> Callable[[Rule], Rule]:
    """Enters a rule for these ops."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            if name in LOWERINGS:
                raise TableError(f"LOWERINGS has two rows for {name!r} (second in {rule.__module__})")
            LOWERINGS[name] = rule
            if view:
                VIEWS.add(name)
        return rule

    return enter
