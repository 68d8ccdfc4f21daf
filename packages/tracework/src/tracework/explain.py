"""explain(fn)(*args): what capture says of one call, and the kernels that were made for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tracework_capture as capture

from . import backends, config
from .dump import Tally
from .options import build


@dataclass(frozen=True)
class Explanation:
    """Graphs, breaks and guards as capture reports them, and how many kernels were generated."""

    capture: Any
    graphs: int
    kernels: int

    def __str__(self) -> str:
        return f"{self.capture}\n{self.graphs} graph(s), {self.kernels} generated kernel(s)"


def explain(fn: Callable[..., Any], *, backend: Any = None, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """Gives a function of fn's arguments that compiles afresh, runs once, and reports."""
    tally = Tally()
    chosen = backends.resolve(backend, build(None, None, config.current()), tally)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        report = capture.explain(fn, backend=chosen, dynamic=dynamic)(*args, **kwargs)
        return Explanation(report, len(report.graphs), tally.kernels)

    return run
