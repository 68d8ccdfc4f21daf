"""error_on_graph_break: whether a graph break in a region of the program is an error. The frame that a break would continue finds the
regions that it is in on the thread's stack."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from ._torch.torch_compile import breaks_are_errors_in_torch_compile
from .errors import ControlMisuse


class _Thread(threading.local):
    def __init__(self) -> None:
        self.regions: list[bool] = []


_thread = _Thread()


def regions() -> tuple[bool, ...]:
    """The regions that this thread is in now, outermost first; ours go before torch's."""
    return (True,) * breaks_are_errors_in_torch_compile() + tuple(_thread.regions)


def leave_region() -> None:
    """The innermost region ends."""
    _thread.regions.pop()


class error_on_graph_break:  # a class with a function's name, as torch's managers are
    """A region in which graph breaks are errors (True) or allowed again (False); the innermost counts.

    A context manager or a decorator, inside or outside of compiled functions. With fullgraph=True breaks are errors everywhere.
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        if not isinstance(error_on_graph_break, bool):
            raise ControlMisuse(
                f"error_on_graph_break() takes True or False, not {error_on_graph_break!r}. As a decorator it is written "
                "@error_on_graph_break(True)."
            )
        self.error_on_graph_break = error_on_graph_break

    def __enter__(self) -> None:
        _thread.regions.append(self.error_on_graph_break)

    def __exit__(self, *exc: object) -> None:
        leave_region()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        wanted = self.error_on_graph_break

        @functools.wraps(function)
        def in_region(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(wanted):
                return function(*args, **kwargs)

        return in_region
