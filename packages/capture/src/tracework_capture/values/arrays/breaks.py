"""Breaks of the graph where arrays are left to NumPy."""

from __future__ import annotations

from ...arrays import array_errors


def refuse(frame, what):
    """A graph break."""
    return frame.break_graph("numpy_array", what)


def watch_errors(frame):
    """Guards that floating-point errors do not raise."""
    frame.root.guards.state("numpy_errors", array_errors())
    if array_errors():
        refuse(frame, "floating-point errors raise, or call something (numpy.seterr)")
