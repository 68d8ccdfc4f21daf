"""Watches Python frames, records a graph of torch calls, writes guards and the code that calls the graph."""

from ._version import __version__
from .contracts import Backend, Break, CapturedGraph, InputBinding, Returned
from .errors import BREAK_REASONS, CaptureError, ControlMisuse, ForbiddenCall, RecompileLimitError, Unsupported
from .explain import Explanation, explain
from .hook.context import capture, disable, optimize, reset, run_only
from .marks import (
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    forbid_in_graph,
    nonstrict_trace,
    substitute_in_graph,
)
from .options import CaptureOptions
from .values.controls import graph_break, skip_frame, step_unsupported

__all__ = [
    "BREAK_REASONS",
    "Backend",
    "Break",
    "CaptureError",
    "CaptureOptions",
    "CapturedGraph",
    "ControlMisuse",
    "Explanation",
    "ForbiddenCall",
    "InputBinding",
    "RecompileLimitError",
    "Returned",
    "Unsupported",
    "__version__",
    "allow_in_graph",
    "assume_constant_result",
    "capture",
    "disable",
    "disallow_in_graph",
    "explain",
    "forbid_in_graph",
    "graph_break",
    "nonstrict_trace",
    "optimize",
    "reset",
    "run_only",
    "skip_frame",
    "step_unsupported",
    "substitute_in_graph",
]
