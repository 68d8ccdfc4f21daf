"""MODES: the modes of torch.compile, each a patch of options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import UnknownName

MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "lite": {"fallback_by_default": True},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "cudagraphs": False},
    "max-autotune": {"max_autotune": True, "cudagraphs": True},
}


def options_of_mode(mode: str) -> Mapping[str, Any]:
    """The option patch of a mode; raises UnknownName for a mode that does not exist."""
    if not isinstance(mode, str) or mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    return MODES[mode]
