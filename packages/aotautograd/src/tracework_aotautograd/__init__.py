"""Traces forward and backward ahead of time, removes mutation, partitions."""

from ._version import __version__
from .api import aot_compile, inference_program, partition
from .contracts import FunctionalProgram, GraphCompiler, GraphSpec, JointProgram, Report
from .errors import AotError, PartitionError, Refusal, UsageError
from .options import AotOptions
from .partition import PARTITIONERS
from .signature import Signature
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
    "UsageError",
    "__version__",
    "aot_compile",
    "inference_program",
    "partition",
    "rewrite",
    "trace_inference",
    "trace_joint",
    "uncompiled",
]
