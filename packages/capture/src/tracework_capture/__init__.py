"""Watches Python frames, records a graph of torch calls, writes guards and the code that calls the graph."""

from typing import TYPE_CHECKING, Any

from ._torch.modes import under_fx_tracing
from ._torch.torch_compile import errors_become_torchs
from ._version import __version__
from .array_functions import wrap_numpy
from .contracts import (
    BESIDE,
    ENTRIES,
    REPEATS_WRITES,
    SYMBOLIC_SIZES,
    Backend,
    Break,
    CapturedGraph,
    EntryStore,
    InputBinding,
    Returned,
)
from .dims import DimRange, mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic
from .errors import (
    BREAK_REASONS,
    BackendError,
    CaptureError,
    ControlMisuse,
    DynamicDimError,
    ForbiddenCall,
    RecompileError,
    RecompileLimitError,
    StanceMisuse,
    Unsupported,
)
from .guards.filters import (
    FilterEntry,
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
)
from .guards.store import StoredGuards
from .guards.store import loads as load_guards
from .hook.agreement import set_agreement
from .hook.collector import paused_collection
from .hook.context import capture, disable, dump_dynamism, dump_guards, optimize, release, reset, run_only
from .hook.dynamism import load_dynamism
from .hook.explain import Explanation, explain
from .hook.guard_costs import EntryCost, guard_costs
from .hook.stance import STANCES, Stance, follow_stance, set_stance
from .hook.whole import NotWhole, Slot, WholeCall, capture_whole
from .marks import (
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    forbid_in_graph,
    graph_break,
    leaf_function,
    nonstrict_trace,
    skip_frame,
    step_unsupported,
    substitute_in_graph,
)
from .options import CaptureOptions
from .regions import error_on_graph_break
from .shapes import declared_shapes
from .signals import defer_signal_errors
from .uncompiled import RecompileLimitWarning, Uncompiled, UncompiledWarning, report_uncompiled
from .watchers import watched

if TYPE_CHECKING:
    from .values.protocol.calls import calls_that_break

__all__ = [
    "BESIDE",
    "BREAK_REASONS",
    "Backend",
    "BackendError",
    "Break",
    "CaptureError",
    "CaptureOptions",
    "CapturedGraph",
    "ControlMisuse",
    "DimRange",
    "DynamicDimError",
    "ENTRIES",
    "EntryCost",
    "EntryStore",
    "Explanation",
    "FilterEntry",
    "ForbiddenCall",
    "InputBinding",
    "NotWhole",
    "RecompileError",
    "RecompileLimitError",
    "RecompileLimitWarning",
    "Returned",
    "STANCES",
    "Slot",
    "REPEATS_WRITES",
    "SYMBOLIC_SIZES",
    "Stance",
    "StanceMisuse",
    "StoredGuards",
    "Uncompiled",
    "UncompiledWarning",
    "Unsupported",
    "WholeCall",
    "__version__",
    "allow_in_graph",
    "assume_constant_result",
    "calls_that_break",
    "capture",
    "capture_whole",
    "declared_shapes",
    "disable",
    "disallow_in_graph",
    "dump_dynamism",
    "dump_guards",
    "error_on_graph_break",
    "errors_become_torchs",
    "explain",
    "follow_stance",
    "forbid_in_graph",
    "graph_break",
    "guard_costs",
    "defer_signal_errors",
    "leaf_function",
    "release",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "load_dynamism",
    "load_guards",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "report_uncompiled",
    "paused_collection",
    "reset",
    "run_only",
    "set_agreement",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "step_unsupported",
    "substitute_in_graph",
    "under_fx_tracing",
    "watched",
    "wrap_numpy",
]


def __getattr__(name: str) -> Any:
    """What takes the interpreter's values, which a process that compiles nothing does not load."""
    if name != "calls_that_break":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .values.protocol.calls import calls_that_break

    return calls_that_break
