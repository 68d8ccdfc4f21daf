"""What captures saw of the tensors that modules keep, so that one that changes is not taken as it is for ever."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class SeenData:
    """What captures saw of the tensors that a module keeps: name -> values, and names of those that a frame writes to."""

    def __init__(self) -> None:
        self.values: dict[str, set[bytes]] = {}
        self.written: set[str] = set()


_seen: dict[int, tuple[Any, SeenData]] = {}
"""id of a module -> a weak reference to it, and what was seen; all code that reads its tensors has this in common."""


def seen_data(owner: torch.nn.Module) -> SeenData:
    """What was seen of this module's tensors."""
    key = id(owner)
    if key not in _seen:
        _seen[key] = weakref.ref(owner, lambda gone: _seen.pop(key, None)), SeenData()
    return _seen[key][1]


def forget_seen() -> None:
    """Forgets what was seen of all modules."""
    _seen.clear()
