"""Watches Python frames, records a graph of torch calls, writes guards and the code that calls the graph."""

from ._version import __version__
from .contracts import Backend, Break, CapturedGraph, InputBinding, Returned
from .errors import BREAK_REASONS, CaptureError, RecompileLimitError, Unsupported
from .explain import Explanation, explain
from .hook.context import capture, disable, optimize, reset, run_only
from .options import CaptureOptions
from .values.controls import graph_break, skip_frame

__all__ = [
    "BREAK_REASONS",
    "Backend",
    "Break",
    "CaptureError",
    "CaptureOptions",
    "CapturedGraph",
    "Explanation",
    "InputBinding",
    "RecompileLimitError",
    "Returned",
    "Unsupported",
    "__version__",
    "capture",
    "disable",
    "explain",
    "graph_break",
    "optimize",
    "reset",
    "run_only",
    "skip_frame",
]
