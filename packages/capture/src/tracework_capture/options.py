"""Options of capture: a frozen value handed to everything below; the environment is never read here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["CaptureOptions"]


def _ignore(stage: str, printable: Any) -> None:
    """The default observer."""


@dataclass(frozen=True)
class CaptureOptions:
    """How to capture.

    fullgraph: a graph break raises Unsupported. dynamic: None makes a size a symbol when it changed between calls, True at once,
    False never. recompile_limit: entries per code object before plain Python runs, with one warning. guard_filter_fn: called with
    a list of guards.filters.FilterEntry, returns one bool each (False drops the guard). observe: called with (stage, printable).
    keep_empty: frames without tensor operations are replaced, too, instead of left alone; for tests of capture itself.
    """

    fullgraph: bool = False
    dynamic: bool | None = None
    recompile_limit: int = 8
    fail_on_limit: bool = False
    guard_filter_fn: Callable[[list[Any]], list[bool]] | None = None
    observe: Callable[[str, Any], None] = _ignore
    inline_depth_limit: int = 200
    name: str | None = None
    keep_empty: bool = False
