"""What one capture gives."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

from ..contracts import Break, CapturedGraph, Returned


class BackendFailed(Exception):
    """The backend raised; the error itself is __cause__."""


@dataclass
class Captured:
    """What one capture of a frame gives: replacement code, what its guards are and what they collect."""

    code: types.CodeType
    guards: Any
    collect: tuple[Any, ...]
    graph: CapturedGraph | None
    symbols: Any
    stop: Returned | Break
    raising_codes: tuple[types.CodeType, ...] = ()
    checked: bool = False  # conditions on data are left to checks
    given_back: bool = True  # the backend gave the graph back as it was
    effects: tuple[str, ...] = ()  # what the code does beside calling the graph and making its result
    seconds: dict[str, float] = field(default_factory=dict)


def name_of(backend: Any) -> str:
    """The backend in messages."""
    return getattr(backend, "__name__", None) or repr(backend)
