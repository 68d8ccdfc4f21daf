"""CUDA graphs: `cudagraph(compiled)` records a CompiledFn where that is sound."""

from tracework_runtime.cudagraph.record import GraphedFn, cudagraph
from tracework_runtime.cudagraph.refusals import CUDAGRAPH_REFUSALS, refusals
from tracework_runtime.cudagraph.step import mark_step_begin

__all__ = ["CUDAGRAPH_REFUSALS", "GraphedFn", "cudagraph", "mark_step_begin", "refusals"]
