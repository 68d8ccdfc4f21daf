"""What the nodes of a graph do and stand for besides what they compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .checks import Effects

if TYPE_CHECKING:
    from .checks import DataCheck
    from .replaced import Replaced

__all__ = ["Recording"]


@dataclass(eq=False)
class Recording:
    """Of one graph."""

    effects: Effects = field(default_factory=Effects)
    checks: list[DataCheck] = field(default_factory=list)
    """Conditions on data that are left to checks."""
    replaced: list[Replaced] = field(default_factory=list)
    """Tensors in whose place a selection gave copies."""
    selecting: bool = False
    """Whether an arm of a condition on data is traced (interp.select)."""
