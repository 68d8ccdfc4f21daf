"""TRACEWORK_LOGS: artifact name -> logger and what it prints."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from .errors import UnknownName

LOGS: Mapping[str, tuple[str, str]] = {
    "graph": ("tracework.capture.graph", "each captured graph"),
    "breaks": ("tracework.capture.breaks", "each graph break: id, user line, reason, cure"),
    "guards": ("tracework.capture.guards", "the guards of each entry"),
    "recompiles": ("tracework.capture.recompiles", "why an existing entry did not match"),
    "bytecode": ("tracework.capture.bytecode", "the code that replaces a frame"),
    "aot": ("tracework.aotautograd", "forward and backward graphs, partition, fallbacks to eager"),
    "prims": ("tracework.primops", "graphs of prims, ops without decomposition"),
    "fusion": ("tracework.inductor.schedule", "kernels and refused fusions"),
    "output_code": ("tracework.inductor.output_code", "the host program and kernels"),
    "fallbacks": ("tracework.fallbacks", "ops that call the eager kernel, and why"),
    "cache": ("tracework.runtime.cache", "cache hits, misses, damaged entries"),
    "cudagraphs": ("tracework.runtime.cudagraph", "recordings, and why there is none"),
    "timing": ("tracework.timing", "time spent in each stage"),
}

_handler = logging.StreamHandler()
_handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))


def enable(names: str | Iterable[str]) -> None:
    """Turns artifacts on by name ("graph,breaks" or a list; "all" for every one). Raises UnknownName."""
    wanted = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    wanted = [n for n in wanted if n]
    for name in LOGS if "all" in wanted else wanted:
        if name not in LOGS:
            raise UnknownName("log artifact", name, [*LOGS, "all"])
        logger = logging.getLogger(LOGS[name][0])
        logger.setLevel(logging.DEBUG)
        if _handler not in logger.handlers:
            logger.addHandler(_handler)
