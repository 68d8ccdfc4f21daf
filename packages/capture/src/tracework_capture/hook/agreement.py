"""Whether an entry serves a call may be decided together with other processes: where its guards fail in one, all compile."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from .. import _C
from . import cache

__all__ = ["set_agreement"]

Ask = Callable[[bool, str], bool]
"""Told whether guards hold in this process, and of which function; gives whether they do in all."""
_asked: Ask | None = None


def set_agreement(ask: Ask | None) -> Ask | None:
    """`ask` is called wherever a call meets compiled code, and decides whether that is used; gives what was asked before. None: nobody."""
    global _asked
    before, _asked = _asked, ask
    _C.set_agreement(None if ask is None else lambda code, owner, holds: _decide(ask, code, owner, holds))
    return before


def _decide(ask: Ask, code: CodeType, owner: Any, holds: bool) -> bool:
    # entries without a graph come and go with the collector, which runs at other times in other processes
    if not any(cache.calls_graph(entry) for entry in cache.entries_of(code, owner)):
        return holds
    return ask(holds, f"{code.co_qualname} (line {code.co_firstlineno})")
