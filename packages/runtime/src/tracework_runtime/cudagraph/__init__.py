"""CUDA graphs: `cudagraph(compiled)` records a CompiledFn where that is sound."""

from tracework_runtime.cudagraph.choose import cudagraph
from tracework_runtime.cudagraph.partition import Part, parts_of
from tracework_runtime.cudagraph.partitioned import PartitionedFn
from tracework_runtime.cudagraph.record import GraphedFn
from tracework_runtime.cudagraph.refusals import CUDAGRAPH_REFUSALS, refusals
from tracework_runtime.cudagraph.step import mark_step_begin
from tracework_runtime.cudagraph.unasked import recorded_where_it_pays

__all__ = [
    "CUDAGRAPH_REFUSALS",
    "GraphedFn",
    "Part",
    "PartitionedFn",
    "cudagraph",
    "mark_step_begin",
    "parts_of",
    "recorded_where_it_pays",
    "refusals",
]
