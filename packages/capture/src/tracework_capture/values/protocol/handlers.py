"""Handlers of calls that the tables of several storeys have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...sources import Const
from .value import Frame, Value

__all__ = ["Handler", "stand_in_row"]

Handler = Callable[[Frame, list[Value], dict[str, Value]], Value]
"""What a call of a known function does: handler(frame, args, kwargs)."""


def stand_in_row(function: Callable[..., Any]) -> Handler:
    """A call that is traced as one of `function`, Python code that does the same."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.wrap(function, Const(function, function.__name__)).call(frame, list(args), kwargs)

    return handler
