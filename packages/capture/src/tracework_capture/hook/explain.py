"""explain(fn)(*args): graphs, breaks, guards, recompiles and plainly run frames of one call, as data and as text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ..contracts import Break, CapturedGraph, PlainFrame, Recompile, Stored
from ..options import CaptureOptions
from ..uncompiled import Uncompiled, collected
from .context import FrameCallback
from .stored import StoredEntries


@dataclass
class Explanation:
    """What capture made of one call.

    graphs: in the order of their capture, each with its inputs and guards. breaks: why graphs ended before their function did, those
    without an operation, which nothing is compiled for, included. skipped: frames that ran as plain Python, with the reason.
    recompiles: calls inside that needed another entry, with the guard that failed. not_stored: entries that no other process can have, and
    why. uncompiled: where tensor operations that were recorded ran
    without a compiled graph, and why. result: what the call gave.
    """

    graphs: list[CapturedGraph] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    skipped: list[PlainFrame] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    not_stored: list[Stored] = field(default_factory=list)
    uncompiled: list[Uncompiled] = field(default_factory=list)
    result: Any = None

    @property
    def operations(self) -> int:
        """Number of calls in all graphs."""
        return sum(node.op in ("call_function", "call_method") for graph in self.graphs for node in graph.graph.graph.nodes)

    def summary(self) -> str:
        """One line."""
        counts = (
            (len(self.graphs), "graph(s)"),
            (self.operations, "operation(s)"),
            (len(self.breaks), "break(s)"),
            (len(self.recompiles), "recompile(s)"),
            (len(self.skipped), "frame(s) run as plain Python"),
        )
        uncompiled = [f"uncompiled at {len(self.uncompiled)} place(s)"] if self.uncompiled else []
        return ", ".join([*(f"{count} {what}" for count, what in counts), *uncompiled])

    def as_dict(self) -> dict[str, Any]:
        """Plain data, fit for JSON: everything but the result."""
        return {
            "graphs": [_graph_data(graph) for graph in self.graphs],
            "breaks": [stop.as_dict() for stop in self.breaks],
            "recompiles": [
                {"function": r.name, "file": r.filename, "line": r.line, "reasons": list(r.reasons), "cures": list(r.cures)}
                for r in self.recompiles
            ],
            "plain": [
                {"function": f.name, "file": f.filename, "line": f.line, "why": f.why, "break": f.stop and f.stop.as_dict()}
                for f in self.skipped
            ],
            "not_stored": [{"function": s.name, "file": s.filename, "line": s.line, "why": s.why} for s in self.not_stored],
            "uncompiled": [{"place": u.place, "why": u.reason} for u in self.uncompiled],
        }

    def __str__(self) -> str:
        lines = [self.summary(), *(f"uncompiled: {each}" for each in self.uncompiled)]
        lines += [f"break {number}: {stop.report()}" for number, stop in enumerate(self.breaks)]
        for recompile in self.recompiles:
            lines.append(f"recompile of {recompile.name} ({recompile.filename}:{recompile.line})")
            lines += [f"  entry {number}: {reason}" for number, reason in enumerate(recompile.reasons)]
            lines += [f"  cure: {cure}" for cure in recompile.cures]
        for frame in self.skipped:
            lines.append(f"plain: {frame.name} ({frame.filename}:{frame.line}): {frame.why}")
            if frame.stop is not None:
                lines.append(f"  because of a break: {frame.stop.report()}")
        lines += [f"not stored: {each.name} ({each.filename}:{each.line}): {each.why}" for each in self.not_stored]
        lines += [graph.text() for graph in self.graphs]
        return "\n".join(lines)


def _graph_data(graph: CapturedGraph) -> dict[str, Any]:
    return {
        "function": graph.origin.function,
        "file": graph.origin.filename,
        "line": graph.origin.line,
        "inputs": [{"name": b.name, "source": str(b.source), "role": b.role} for b in graph.inputs],
        "code": graph.graph.code.strip(),
        "guards": [str(guard) for guard in graph.guards],
        "conditions": [str(condition) for condition in graph.symbols.conditions] if graph.symbols is not None else [],
        "stop": graph.stop.reason_id if isinstance(graph.stop, Break) else "returned",
    }


def _run_graph(gm: Any, example_inputs: list[Any]) -> Any:
    return gm.forward


def explain(
    function: Callable[..., Any],
    backend: Any = None,
    dynamic: bool | None = None,
    unbacked: bool | None = False,
    around: Callable[[CodeType], AbstractContextManager[Any]] = nullcontext,
    stored: bool = False,
) -> Callable[..., Explanation]:
    """A function of `function`'s arguments that captures afresh, runs once and reports; dynamic, unbacked and around are optimize's. stored:
    whether entries for this backend are stored, so that those which cannot be are of interest."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()

        def observe(stage: str, product: Any) -> None:
            if stage == "captured":
                found.graphs.append(product)

        options = CaptureOptions(dynamic=dynamic, unbacked=unbacked, observe=observe, around=around)
        callback = FrameCallback(backend or _run_graph, options, function)
        if stored and callback.stored is None:
            callback.stored = StoredEntries()
        with collected() as found.uncompiled:
            found.result = callback.wrap(function)(*args, **kwargs)
        found.breaks, found.skipped, found.recompiles = list(callback.breaks), list(callback.skipped), list(callback.recompiles)
        found.not_stored = [each for each in callback.kept if each.why]
        return found

    return run
