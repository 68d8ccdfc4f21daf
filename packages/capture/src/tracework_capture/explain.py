"""explain(fn)(*args): graphs, breaks, guards and plainly run frames of one call, as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _C
from .contracts import Break
from .hook.context import FrameCallback
from .options import CaptureOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from .contracts import CapturedGraph

__all__ = ["Explanation", "explain"]


@dataclass
class Explanation:
    """What capture made of one call."""

    graphs: list[CapturedGraph] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    result: Any = None

    @property
    def breaks(self) -> list[Break]:
        """Why graphs ended before their function did."""
        return [graph.stop for graph in self.graphs if isinstance(graph.stop, Break)]

    def __str__(self) -> str:
        lines = [f"{len(self.graphs)} graph(s), {len(self.breaks)} break(s), {len(self.skipped)} frame(s) run as plain Python"]
        for number, stop in enumerate(self.breaks):
            place = stop.stack[-1] if stop.stack else "?"
            lines.append(f"break {number}: {stop.text} at {place}")
        lines += [f"plain: {name}: {why}" for name, why in self.skipped]
        lines += [graph.text() for graph in self.graphs]
        return "\n".join(lines)


def _run_graph(gm: Any, example_inputs: list[Any]) -> Any:
    return gm.forward


def explain(function: Callable[..., Any], backend: Any = None, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """A function of `function`'s arguments that captures afresh, runs once and reports."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()

        def observe(stage: str, product: Any) -> None:
            if stage == "captured" and product is not None:
                found.graphs.append(product)

        callback = FrameCallback(backend or _run_graph, CaptureOptions(dynamic=dynamic, observe=observe))
        found.result = _C.Scoped(function, callback)(*args, **kwargs)
        found.skipped = list(callback.skipped)
        return found

    return run
