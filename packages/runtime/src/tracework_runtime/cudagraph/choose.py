"""How a compiled function is recorded: as one CUDA graph, in parts, or not at all."""

from __future__ import annotations

import functools
import logging
from typing import Any

from tracework_runtime import observe
from tracework_runtime.cudagraph.partition import parts_of
from tracework_runtime.cudagraph.partitioned import PartitionedFn, around_failure
from tracework_runtime.cudagraph.policy import by_policy
from tracework_runtime.cudagraph.record import ADVICE, GraphedFn
from tracework_runtime.cudagraph.refusals import refusals
from tracework_runtime.errors import NotRecorded
from tracework_runtime.host.program import NotInterpreted
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["cudagraph"]

log = logging.getLogger("tracework.runtime.cudagraph")


def cudagraph(compiled: Any, options: RuntimeOptions = DEFAULT_OPTIONS) -> Any:
    """The function as CUDA graphs: whole, or in parts with what cannot be recorded between them; itself, with the reason logged, where no
    part can be.

    `cudagraph_policy` is asked first. Raises NotRecorded where something cannot be recorded, with `cudagraph_or_error`.
    """
    chosen = by_policy(compiled, options)
    if chosen is not None:
        return chosen
    reasons = refusals(compiled.artifact)
    if reasons and options.cudagraph_or_error:
        raise NotRecorded(f"{compiled!r} is not recorded: {'; '.join(reasons)}", advice=ADVICE)
    parts = parts_of(compiled.artifact) if options.graph_partition else ()
    if parts:
        try:
            made = PartitionedFn(compiled, parts, options)
        except NotInterpreted as kernel:
            log.info("%r is not recorded in parts: %s is called by Python", compiled, kernel)
        else:
            log.info("%r: between its parts runs %s", made, "; ".join(reasons) or "nothing")
            return made
    if not reasons:
        graphed = GraphedFn(compiled, options)
        graphed.in_parts = functools.partial(around_failure, compiled, options, graphed.engine)
        return graphed
    log.info("%r is not recorded: %s", compiled, "; ".join(reasons))
    observe.add("cudagraph.refused")
    return compiled
