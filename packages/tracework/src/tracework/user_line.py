"""Where a warning of compile() belongs: the line of the program, from which torch's own functions may lie on the way here."""

from __future__ import annotations

import sys

_ON_THE_WAY = ("tracework", "tracework_capture", "tracework_aotautograd", "torch", "contextlib")


def levels_inside() -> int:
    """The `stacklevel=` with which a caller's warning is at the innermost line that is neither of these packages nor of what they call through."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _ON_THE_WAY:
        level, frame = level + 1, frame.f_back
    return level
