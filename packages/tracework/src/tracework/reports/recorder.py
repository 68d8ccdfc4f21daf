"""Recorder: keeps what a report is made of while programs are compiled and run; nothing is worked out before somebody asks."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import tracework_aotautograd as aotautograd
import tracework_capture as capture
import tracework_runtime as runtime

from .. import activity
from ..observe import watched


@dataclass
class Compiled:
    """A functional graph and what was made of it. unrecorded: why it is not recorded as one CUDA graph; times: of its steps, where it is measured."""

    function: str
    role: str
    graph: torch.fx.GraphModule
    symbols: Any
    prims: Any = None
    artifact: Any = None
    unrecorded: tuple[str, ...] = ()
    times: runtime.StepTimes | None = None


@dataclass
class Recorder:
    """Everything that capture and the later stages tell between start() and stop().

    profile: the launches and calls of each graph are timed one by one, and are ranges in torch's profiler; nothing is recorded as a CUDA
    graph then. memory: of a call beside eager's, and guards: what those take that it checks, where they were measured.
    """

    profile: bool = False
    memory: dict[str, Any] | None = None
    guards: list[capture.EntryCost] | None = None
    captured: list[Any] = field(default_factory=list)
    breaks: list[Any] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    recompiles: list[Any] = field(default_factory=list)
    stored: list[Any] = field(default_factory=list)
    uncompiled: list[Any] = field(default_factory=list)
    between: list[str] = field(default_factory=list)
    """What runs as it is between compiled parts of a graph, and why."""
    compiled: list[Compiled] = field(default_factory=list)
    trained: list[tuple[str, Any]] = field(default_factory=list)
    """Function, and what its graph was cut into."""
    spans: list[activity.Span] = field(default_factory=list)
    _backwards: list[tuple[torch.fx.GraphModule, str]] = field(default_factory=list)
    _now: threading.local = field(default_factory=threading.local)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        """Begins to listen."""
        for each in (capture.watched(self._of_capture), watched(self), activity.watched(self.spans.append)):
            self._stack.enter_context(each)

    def stop(self) -> None:
        """Ends it. What runs watched goes on being timed."""
        self._stack.close()

    def _of_capture(self, event: str, what: Any) -> None:
        with _apart():
            self._keep(event, what)

    def _keep(self, event: str, what: Any) -> None:
        kept = {
            "captured": self.captured,
            "break": self.breaks,
            "plain": self.plain,
            "recompile": self.recompiles,
            "stored": self.stored,
            "uncompiled": self.uncompiled,
        }[event]
        if event == "captured" or what not in kept:
            kept.append(what)

    def product(self, stage: str, product: Any) -> None:
        """As a watcher of products."""
        with _apart():
            self._product(stage, product)

    def _product(self, stage: str, product: Any) -> None:
        own = self.current()
        if stage == "graph":
            graph, spec = product
            function = next((name for known, name in self._backwards if known is graph), activity.compiling())
            self._now.compiled = Compiled(function, spec.role, graph, spec.symbols)
            self.compiled.append(self._now.compiled)
        elif stage == "aotautograd" and isinstance(product, aotautograd.FunctionalProgram):
            self.trained.append((activity.compiling(), product))
            self._backwards += [(each.graph, activity.compiling()) for each in product.backwards]
        elif stage == "between":
            self.between += [text for text in product if text not in self.between]
        elif stage == "primops" and own is not None and own.prims is None:
            own.prims = product
        elif stage == "runtime" and own is not None:
            own.artifact = product.artifact
            if any(device.startswith("cuda") for device in own.artifact.devices):
                own.unrecorded = product.graph_refusals

    def loaded(self, compiled: Any) -> Any:
        """The same function, or one whose steps are timed."""
        with _apart():
            return self._timed(compiled)
        return compiled

    def _timed(self, compiled: Any) -> Any:
        own = self.current()
        if not self.profile or own is None:
            return compiled
        on_gpu = any(device.startswith("cuda") for device in compiled.artifact.devices)
        times = runtime.StepTimes(on_gpu, runtime.Ranges.of(compiled.artifact, f"{own.role} of {own.function}"))
        made = runtime.watched(compiled, times)
        own.times = times if made is not compiled else None
        return made

    def current(self) -> Compiled | None:
        """What this thread is compiling."""
        return getattr(self._now, "compiled", None)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """What fails in here is told, and the program that is looked at goes on."""
    try:
        yield
    except Exception as error:
        warnings.warn(f"report: a part is missing: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
