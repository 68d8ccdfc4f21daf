"""Breaks of the graph where arrays are left to NumPy."""

from __future__ import annotations

from typing import NoReturn

from ...arrays import array_errors
from ..protocol.value import Frame


def refuse(frame: Frame, what: str) -> NoReturn:
    """A graph break."""
    frame.break_graph("numpy_array", what)


def watch_errors(frame: Frame) -> None:
    """Guards that floating-point errors do not raise."""
    frame.guards.state("numpy_errors", array_errors())
    if array_errors():
        refuse(frame, "floating-point errors raise, or call something (numpy.seterr)")
