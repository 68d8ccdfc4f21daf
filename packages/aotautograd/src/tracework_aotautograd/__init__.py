"""Traces forward and backward ahead of time, removes mutation, partitions.

The names are loaded at the first use of one: what makes a stored callable again (recipes.py) needs none of them.
"""

import importlib
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import aot_compile, inference_program, partition
    from .contracts import FunctionalProgram, GraphCompiler, GraphSpec, JointProgram, Report
    from .errors import AotError, PartitionError, Refusal, UsageError
    from .options import AotOptions
    from .partition import PARTITIONERS
    from .partition.trade_off import TradeOff, trade_off
    from .signature import Signature
    from .text import functional_graph, functional_module
    from .trace.joint import trace_inference, trace_joint
    from .trace.rewritten import rewrite
    from .wrappers.uncompiled import uncompiled

__all__ = [
    "PARTITIONERS",
    "AotError",
    "AotOptions",
    "FunctionalProgram",
    "GraphCompiler",
    "GraphSpec",
    "JointProgram",
    "PartitionError",
    "Refusal",
    "Report",
    "Signature",
    "TradeOff",
    "UsageError",
    "__version__",
    "aot_compile",
    "functional_graph",
    "functional_module",
    "inference_program",
    "partition",
    "rewrite",
    "trace_inference",
    "trace_joint",
    "trade_off",
    "uncompiled",
]

HOMES: Mapping[str, str] = {
    "PARTITIONERS": ".partition",
    "AotOptions": ".options",
    "Signature": ".signature",
    **dict.fromkeys(("aot_compile", "inference_program"), ".api"),
    "rewrite": ".trace.rewritten",
    **dict.fromkeys(("TradeOff", "trade_off"), ".partition.trade_off"),
    "uncompiled": ".wrappers.uncompiled",
    **dict.fromkeys(("FunctionalProgram", "GraphCompiler", "GraphSpec", "JointProgram", "Report"), ".contracts"),
    **dict.fromkeys(("AotError", "PartitionError", "Refusal", "UsageError"), ".errors"),
    **dict.fromkeys(("functional_graph", "functional_module"), ".text"),
    **dict.fromkeys(("trace_inference", "trace_joint"), ".trace.joint"),
}
"""Name -> the module that it comes from."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    own = globals()
    own.update({n: getattr(importlib.import_module(home, __name__), n) for n, home in HOMES.items()})
    return own[name]


class _Package(types.ModuleType):
    """`partition` is the function, not the package of this name, which importing that would put here."""

    @property
    def partition(self) -> Any:
        return importlib.import_module(".api", __name__).partition

    @partition.setter
    def partition(self, package: Any) -> None:
        pass


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
