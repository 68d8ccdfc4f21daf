"""What the program itself says of a graph: to be recorded, to be left as it is, or to be called otherwise."""

from __future__ import annotations

import logging
from typing import Any

from tracework_runtime import observe
from tracework_runtime.options import RuntimeOptions

__all__ = ["by_policy"]

log = logging.getLogger("tracework.runtime.cudagraph")


def by_policy(compiled: Any, options: RuntimeOptions) -> Any:
    """What `cudagraph_policy` puts in the place of a CompiledFn, which may be the same; None where it is to be recorded."""
    wanted = True if options.cudagraph_policy is None else options.cudagraph_policy(compiled)
    if callable(wanted):
        return wanted
    if wanted:
        return None
    log.info("%r is not recorded: cudagraph_policy leaves it out", compiled)
    observe.add("cudagraph.refused")
    return compiled
