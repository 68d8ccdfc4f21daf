"""The event that code of the program, which is not traced, may run now, or look at what the trace has changed."""

from __future__ import annotations

from .value import Frame, Value


def check_frame_hooks(frame: Frame, module: Value | None = None) -> None:
    """Raises Again where a forward hook that the traced program put on a module, on this one if it is given, is part of the trace
    alone (torch/frame_hooks.py)."""
    for each in frame.modes.frame_hooks:
        if module is None or each.module is module:
            each.refused()
