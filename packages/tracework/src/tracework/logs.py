"""TRACEWORK_LOGS: artifact name -> loggers and what they print. Texts of stage products are logged by `log_product`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from .dump import text_of
from .errors import UnknownName

LOGS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "graph": (("tracework.products.captured",), "each captured graph"),
    "breaks": (
        ("tracework.capture", "tracework.capture.breaks"),
        "each graph break and each frame that runs as plain Python: user line, reason, cure",
    ),
    "recompiles": (("tracework.capture.recompiles",), "why no existing entry matched"),
    "aot": (
        ("tracework.aotautograd", "tracework.products.aotautograd"),
        "joint, forward and backward graphs, masks proven away",
    ),
    "prims": (
        ("tracework.primops", "tracework.products.primops"),
        "graphs of prims, ops without decomposition, sizes that became fixed",
    ),
    "output_code": (("tracework.products.inductor",), "the host program and the kernels"),
    "fallbacks": (("tracework.fallbacks",), "ops and graphs that call the eager kernels, and why"),
    "cache": (("tracework.runtime.cache",), "damaged and missing entries"),
    "cudagraphs": (("tracework.runtime.cudagraph",), "recordings, and why there is none"),
    "timing": (("tracework.timing",), "time spent in each stage"),
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
        for logger_name in LOGS[name][0]:
            logger = logging.getLogger(logger_name)
            logger.setLevel(logging.DEBUG)
            logger.propagate = False
            if _handler not in logger.handlers:
                logger.addHandler(_handler)


def log_product(stage: str, product: Any) -> None:
    """An observer: the text of a stage's product goes to its logger, when that is on."""
    logger = logging.getLogger(f"tracework.products.{stage}")
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s", text_of(product))
