"""What a program calls to steer capture: no-ops in plain Python, known to the interpreter by their names."""

from __future__ import annotations

from typing import Any

from ..errors import SkipFrame, Unsupported
from .constant import plain

__all__ = ["ROWS", "graph_break", "skip_frame"]


def graph_break(message: str = "") -> None:
    """The graph ends here and another one starts after the call; under fullgraph=True this is an error."""


def skip_frame(message: str = "") -> None:
    """The function that calls this runs as plain Python, while what it calls is still captured."""


def _graph_break(frame: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    frame.break_graph("explicit", _text(args, kwargs))


def _skip_frame(frame: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if frame.root.options.fullgraph:
        raise Unsupported("explicit", "skip_frame() was called", (frame.location(),))
    if len(frame.locations()) > 1:  # inlined: the caller's graph breaks at the call, and this frame is then met by itself
        frame.break_graph("explicit", "skip_frame() was called")
    raise SkipFrame(f"skip_frame() was called {_text(args, kwargs)}".strip())


def _text(args: list[Any], kwargs: dict[str, Any]) -> str:
    given = [*args, *kwargs.values()]
    return str(plain(given[0])) if given and given[0].is_constant() else ""


ROWS = {f"{__name__}.graph_break": _graph_break, f"{__name__}.skip_frame": _skip_frame}
