"""tracework.compiler: the names of torch.compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import tracework_capture as capture

from .backends import get_default_backend, list_backends, register_backend, set_default_backend
from .options import list_mode_options, list_options

__all__ = [
    "disable",
    "get_default_backend",
    "is_compiling",
    "list_backends",
    "list_mode_options",
    "list_options",
    "register_backend",
    "reset",
    "set_default_backend",
]


def reset() -> None:
    """Forgets every entry, mark and counter of this process; caches on disk stay."""
    capture.reset()


def is_compiling() -> bool:
    """False when it runs as plain Python; capture answers True while it records."""
    return torch.compiler.is_compiling()


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks a function to run uncompiled; with `recursive` also what it calls. Decorator with and without arguments."""
    if fn is None:
        return lambda inner: disable(inner, recursive, reason=reason)
    return capture.disable(fn, recursive=recursive, reason=reason)
