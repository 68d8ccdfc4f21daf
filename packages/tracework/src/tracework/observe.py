"""Observers: functions of (stage name, printable product) that see what each stage makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Observe = Callable[[str, Any], None]


def nothing(stage: str, product: Any) -> None:
    """The observer that does nothing."""
