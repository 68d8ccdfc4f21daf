"""Queries that have one answer for all of a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .value import Value


@dataclass(eq=False)
class Queries:
    """Questions and answers."""

    traces_equality: bool = False
    """Whether a table asks about its keys (user_keys)."""
    key_answers: dict[Any, Any] = field(default_factory=dict)
    """What it was told."""
    distinguished: set[frozenset[Any]] = field(default_factory=set)
    """Pairs of sources whose objects were found to be different ones."""
    shown: list[Value] = field(default_factory=list)
    """Objects whose text is being written (plain.nested_texts)."""
    masks: dict[Any, Any] = field(default_factory=dict)
    """What a mask asks of tensors -> the first one that does (torch/indices.py)."""
    remembered: dict[Any, Any] = field(default_factory=dict)
    """Calls of functions that remember results -> what they gave (objects.remembered)."""
    remembered_here: dict[int, dict[Any, Value]] = field(default_factory=dict)
    """The same of those with arguments that no guard knows."""
    remembered_after: set[int] = field(default_factory=set)
    """Functions of that kind that are called after the graph."""
