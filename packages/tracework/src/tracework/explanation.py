"""explain(fn)(*args): what capture says of one call, and the kernels that were made for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tracework_capture as capture

from . import backends, config
from .dump import Tally
from .errors import NotCallable
from .options import build


@dataclass(frozen=True)
class Explanation:
    """Graphs, breaks and guards as capture reports them, how many kernels were generated, and why graphs on a GPU could not be recorded as
    CUDA graphs (mode "reduce-overhead"), with the operators that stand against it; parts: how many CUDA graphs record the others, or
    parts of them; between: what runs between these, and why."""

    capture: Any
    graphs: int
    kernels: int
    unrecorded: tuple[str, ...] = ()
    parts: int = 0
    between: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.graphs} graph(s), {self.kernels} generated kernel(s)"]
        if self.parts and self.between:
            lines.append(f"{self.parts} part(s) can be recorded as CUDA graphs, between which run")
            lines += [f"  {what}" for what in self.between]
        lines += [f"not recorded as a CUDA graph: {reason}" for reason in self.unrecorded]
        return "\n".join([str(self.capture), *lines])


def explain(fn: Callable[..., Any], *, backend: Any = None, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """Gives a function of fn's arguments that compiles afresh, runs once, and reports."""
    if not callable(fn):
        raise NotCallable(f"explain() takes a function, method or nn.Module, not {type(fn).__name__}: {fn!r}.")
    tally = Tally()
    unbacked = None if backends.is_ours(backend) else False  # as compile() does
    chosen = backends.resolve(backend, build(None, None, config.current()), tally)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        report = capture.explain(fn, backend=chosen, dynamic=dynamic, unbacked=unbacked)(*args, **kwargs)
        unrecorded, between = tuple(dict.fromkeys(tally.unrecorded)), tuple(dict.fromkeys(tally.between))
        return Explanation(report, len(report.graphs), tally.kernels, unrecorded, tally.parts, between)

    return run
