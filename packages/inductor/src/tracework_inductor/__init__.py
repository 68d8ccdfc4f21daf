"""Lowers prim graphs to loops, fuses them and writes C++ and Triton kernels."""

from ._version import __version__
from .codegen import TARGETS
from .errors import InductorError, LoweringError
from .lowering import LOWERINGS, lower, places
from .lowering.attention import DEVICES as ATTENTION_DEVICES
from .options import InductorOptions
from .passes import GRAPH_PASSES
from .pipeline import compile_graph, compile_plan, plan_graph
from .schedule.pipeline import schedule
from .schedule.plan import KernelPlan, Program

__all__ = [
    "ATTENTION_DEVICES",
    "GRAPH_PASSES",
    "LOWERINGS",
    "TARGETS",
    "InductorError",
    "InductorOptions",
    "KernelPlan",
    "LoweringError",
    "Program",
    "__version__",
    "compile_graph",
    "compile_plan",
    "lower",
    "places",
    "plan_graph",
    "schedule",
]
