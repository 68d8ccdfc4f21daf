"""TRACEWORK_LOGS: artifact name -> loggers and what they print. Texts of stage products are logged by `log_product`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from . import _torch
from .config import Config
from .dump import text_of
from .errors import UnknownName
from .torch_logs import artifacts_of

LOGS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "graph": (("tracework.products.captured",), "each captured graph"),
    "breaks": (
        tuple(f"tracework.capture.{part}" for part in ("breaks", "plain", "checks", "graph", "opaque")),
        "each graph break and each frame that runs as plain Python: user line, reason, cure",
    ),
    "attempts": (("tracework.capture.attempts",), "frames that are captured again, and what the attempt before found out"),
    "recompiles": (("tracework.capture.recompiles",), "why no existing entry matched"),
    "aot": (
        (
            "tracework.aotautograd.masks",
            "tracework.aotautograd.attention",
            "tracework.aotautograd.layouts",
            "tracework.products.aotautograd",
        ),
        "joint, forward and backward graphs, masks proven away, attention whose scores are computed, operators that refuse a layout",
    ),
    "budget": (
        ("tracework.products.budget",),
        "what a forward keeps for its backward: what memory_budget came to, and what each budget would keep and cost",
    ),
    "prims": (
        ("tracework.primops.decompose", "tracework.primops.fake", "tracework.products.primops"),
        "graphs of prims, ops without decomposition, sizes that became fixed",
    ),
    "guards": (("tracework.products.guards",), "the guards of each captured graph"),
    "sizes": (
        ("tracework.products.sizes", "tracework.primops.symbols"),
        "the sizes and numbers of each captured graph that are symbols, and conditions on them",
    ),
    "bytecode": (("tracework.capture.bytecode",), "what Python runs in the place of each captured frame"),
    "plan": (("tracework.products.plan",), "the kernels of each graph after fusion, their loops and memory, and refused fusions"),
    "output_code": (("tracework.products.inductor",), "the host program and the kernels"),
    "autotuning": (
        ("tracework.inductor.autotune", "tracework.runtime.launch"),
        "the configurations of a kernel that were measured, and the choice; binaries that cannot be loaded",
    ),
    "fallbacks": (("tracework.fallbacks",), "ops and graphs that call the eager kernels, and why"),
    "cache": (
        ("tracework.runtime.cache", "tracework.capture.stored"),
        "damaged and missing entries; frames that an entry of another process serves, or why it does not; which are stored, and why not",
    ),
    "carrying": (("tracework.whole",), "entries that a program carried away does not have, and why"),
    "cudagraphs": (("tracework.runtime.cudagraph",), "recordings, and why there is none"),
    "timing": (("tracework.timing",), "time spent in each stage"),
}

BESIDE = frozenset({"autotuning", "cache", "carrying", "cudagraphs", "recompiles", "timing"})
"""Artifacts for which nothing has to be compiled that another process has stored."""

_handler = logging.StreamHandler()
_handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))


def enable(names: str | Iterable[str]) -> None:
    """Turns artifacts on by name ("graph,breaks" or a list; "all" for every one). Raises UnknownName."""
    wanted = [n for n in map(str.strip, names.split(",") if isinstance(names, str) else names) if n]
    for name in LOGS if "all" in wanted else wanted:
        if name not in LOGS:
            raise UnknownName("log artifact", name, [*LOGS, "all"])
        for logger_name in LOGS[name][0]:
            logger = logging.getLogger(logger_name)
            logger.setLevel(logging.DEBUG)
            logger.propagate = False
            if _handler not in logger.handlers:
                logger.addHandler(_handler)


def enable_from(environment: Config) -> bool:
    """Turns on what TRACEWORK_LOGS, TORCH_LOGS and torch._logging.set_logs() ask for, and says whether something of it is to be seen made, for which
    no stored entry may serve. Raises UnknownName."""
    torchs = ",".join((environment.torch_logs, *_torch.logs_that_are_on()))
    names = [*environment.logs.split(","), *artifacts_of(torchs)]
    enable(names)
    return not BESIDE.issuperset({*map(str.strip, names)} - {""})


def is_on(product: str) -> bool:
    """Whether the text of a product is wanted."""
    return logging.getLogger(f"tracework.products.{product}").isEnabledFor(logging.DEBUG)


def log_product(stage: str, product: Any) -> None:
    """An observer: the text of a stage's product goes to its logger, when that is on."""
    if is_on(stage):
        logging.getLogger(f"tracework.products.{stage}").debug("%s", text_of(product))
    if stage == "aotautograd" and is_on("budget") and hasattr(product, "kept"):
        lines = [] if product.kept is None else [product.kept.text()]
        logging.getLogger("tracework.products.budget").debug("%s", "\n".join([*lines, _trade_off(product)]))
    if stage == "captured":
        for part in ("guards", "sizes"):
            if is_on(part):
                logging.getLogger(f"tracework.products.{part}").debug("%s", _part_of(product, part))


def _trade_off(program: Any) -> str:
    from tracework_aotautograd import trade_off  # which is loaded where there is such a program

    return trade_off(program).text()


def _part_of(captured: Any, part: str) -> str:
    lines = captured.guards if part == "guards" else _sizes(captured.symbols)
    return "\n".join([f"{part} of {captured.origin}", *(f"  {line}" for line in lines)])


def _sizes(table: Any) -> list[str]:
    """Each symbol with its present value and the range in which the graph holds."""
    ranges = table.ranges
    shown = [(s, table.hint(s) if table.has_hint(s) else "unknown", ranges.get(s, ("-inf", "inf"))) for s in table.symbols]
    return [f"{symbol} = {hint}, from {low} to {high}" for symbol, hint, (low, high) in shown] or ["none is a symbol"]
