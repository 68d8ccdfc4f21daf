"""explain(fn)(*args): what one call was made of, in ten lines; what capture says in full, and the kernels that were made."""

from __future__ import annotations

import functools
import os
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import tracework_capture as capture

from . import activity, backends, config
from .compiled_module import ARGUMENTS, CompiledModule, entry_function, with_a_frame
from .dump import Tally
from .errors import NotCallable
from .options import build

LINES = 10
"""At most so many lines are printed; full() has the rest."""
LENGTH = 100
"""At most so many characters of a reason are printed."""


@dataclass(frozen=True)
class Explanation:
    """What one call was made of; printed in ten lines.

    capture: graphs, breaks, guards, recompiles and plainly run frames as capture reports them. graphs: how many were captured. kernels: how
    many were generated. library: operators that call the library's kernels. unrecorded: why graphs on a GPU could not be recorded as CUDA
    graphs (mode "reduce-overhead"), with the operators that stand against it. parts: how many CUDA graphs record the others, or parts of
    them. between: what runs as it is between these, or between compiled parts of a graph, and why. seconds: what each stage of the compilation took, without
    the stages inside of it. choices: which block sizes kernels were chosen from, and what they took (max_autotune).
    all_scores: why flex_attention computes all scores on a GPU. budgets: what the memory budget of a training step came to, for each graph.
    """

    capture: Any
    graphs: int
    kernels: int
    library: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()
    parts: int = 0
    between: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    all_scores: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()

    def full(self) -> str:
        """All of it: every break with its source lines, every graph with its guards."""
        attention = [f"attention computes all scores: {reason}" for reason in self.all_scores]
        return "\n".join([*self._summary(), *attention, *self.budgets, *self._recordings(), *self.choices, str(self.capture)])

    def __str__(self) -> str:
        summary, found = self._summary(), self._findings()
        room = LINES - len(summary) - 1
        if len(found) > room:
            found = [*found[: room - 1], f"and {len(found) - room + 1} more"]
        return "\n".join([*summary, *found, "guards, graphs and source lines: print(explain(...)(...).full())"])

    def _summary(self) -> list[str]:
        said = self.capture
        parts = [
            f"graphs: {self.graphs} ({said.operations} operations)",
            f"breaks: {len(said.breaks)}",
            f"recompiles: {len(said.recompiles)}",
            f"uncompiled: {len(said.uncompiled)}",
            f"kernels: {self.kernels} generated",
        ]
        library = f", library: {', '.join(re.split('[.:]+', name)[-1] for name in self.library)}" if self.library else ""
        stages = ", ".join(f"{name} {self.seconds[name]:.2f}" for name in activity.STAGES if name in self.seconds)
        return [", ".join(parts) + library, f"compiled in {sum(self.seconds.values()):.2f} s: {stages or 'nothing was compiled'}"]

    def _recordings(self) -> list[str]:
        lines = [f"not recorded as a CUDA graph: {reason}" for reason in self.unrecorded]
        if self.parts and self.between:
            lines.append(f"{self.parts} part(s) can be recorded as CUDA graphs")
        return lines + [f"runs between {'recorded' if self.parts else 'compiled'} parts: {what}" for what in self.between]

    def _findings(self) -> list[str]:
        """A line for each: what runs uncompiled comes first, functions that are plain Python of themselves last."""
        said = self.capture
        lines = [f"uncompiled at {each.place}: {_line(each.reason)}" for each in said.uncompiled]
        lines += [_break_line(stop) for stop in said.breaks]
        for again in said.recompiles:
            cure = f"; try: {_line(again.cures[0])}" if again.cures else ""
            lines.append(f"recompile at {_place(again)} in {again.name}: {_line(again.reasons[-1])}{cure}")
        lines += [f"not stored for other processes: {each.name} ({_place(each)}): {_line(each.why)}" for each in said.not_stored]
        lines += [f"attention computes all scores: {_line(reason)}" for reason in self.all_scores]
        lines += self.budgets
        lines += self._recordings()
        stopped = [each for each in said.skipped if each.stop is not None and each.stop not in said.breaks]
        lines += [f"plain Python: {each.name} ({_place(each)}), after {_break_line(each.stop)}" for each in stopped]
        if not self.graphs:
            plain = [each for each in said.skipped if each.stop is None]
            lines += [f"plain Python: {each.name} ({_place(each)}): {_line(each.why)}" for each in plain]
        return lines


def _line(text: str) -> str:
    """On one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= LENGTH else f"{line[: LENGTH - 1]}…"


def _place(of: Any) -> str:
    """file:line, of a file below the working directory as seen from there."""
    return f"{of.filename.removeprefix(os.getcwd() + os.sep)}:{of.line}"


def _break_line(stop: Any) -> str:
    data = stop.as_dict()
    at = _place(stop.place) if stop.place else "a place that is not known"
    what = f"{data['what']} ({_line(stop.detail)})" if stop.detail else data["what"]
    return f"break at {at} ({data['reason_id']}): {what}; try: {data['cure']}"


@dataclass(frozen=True)
class BreakReason:
    """A break under the names of torch's: its text, and the user's lines as traceback.FrameSummary, outermost first."""

    reason: str
    user_stack: list[traceback.FrameSummary]
    graph_break: bool = True


class TorchsExplanation:
    """What torch._dynamo.explain gives where this compiler stands in for torch's: its fields, and the text of ours.

    graphs: the captured GraphModules. ops_per_graph: what each calls. out_guards: as text. compile_times: a line. explanation: ours.
    """

    def __init__(self, explanation: Explanation) -> None:
        said = explanation.capture
        self.explanation = explanation
        self.graphs: list[torch.fx.GraphModule] = [captured.graph for captured in said.graphs]
        self.graph_count = explanation.graphs
        self.graph_break_count = len(said.breaks)
        self.break_reasons = [BreakReason(stop.text, [_frame_summary(at) for at in stop.stack]) for stop in said.breaks]
        self.op_count: int = said.operations
        self.ops_per_graph = [
            [node.target for node in graph.graph.nodes if node.op in ("call_function", "call_method")] for graph in self.graphs
        ]
        self.out_guards = [str(guard) for captured in said.graphs for guard in captured.guards]
        self.compile_times = explanation._summary()[-1]

    def full(self) -> str:
        """As of ours."""
        return self.explanation.full()

    def __str__(self) -> str:
        return str(self.explanation)


def _frame_summary(at: Any) -> traceback.FrameSummary:
    return traceback.FrameSummary(at.filename, at.line, at.function.rpartition(".")[2])


def explain(fn: Callable[..., Any], *, backend: Any = None, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """Gives a function of fn's arguments that compiles afresh, runs once, and reports. Of what is compiled already the uncompiled one is
    meant, with the options that compile() was given."""
    if not callable(fn):
        raise NotCallable(f"explain() takes a function, method or nn.Module, not {type(fn).__name__}: {fn!r}.")
    tally = Tally()
    unbacked = None if backends.is_ours(backend) else False  # as compile() does
    options = build(*_asked_for(fn), config.current())
    chosen = backends.resolve(backend, options, tally)
    stored = backends.stores(backend, options)
    target = uncompiled_form(fn)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        around = functools.partial(activity.frame, options.progress)
        with activity.collected() as seconds:
            report = capture.explain(target, backend=chosen, dynamic=dynamic, unbacked=unbacked, around=around, stored=stored)(
                *args, **kwargs
            )
        library, unrecorded, between = (
            tuple(dict.fromkeys(found)) for found in (sorted(tally.library), tally.unrecorded, tally.between)
        )
        return Explanation(
            report,
            len(report.graphs),
            tally.kernels,
            library,
            unrecorded,
            tally.parts,
            between,
            dict(seconds),
            tuple(tally.choices),
            tuple(tally.all_scores),
            tuple(tally.budgets),
        )

    return run


def _asked_for(fn: Any) -> tuple[str | None, Mapping[str, Any] | None]:
    """The mode and the options for this compiler that compile() was given for a callable."""
    in_place = isinstance(fn, torch.nn.Module) and not isinstance(fn, CompiledModule)
    compiled = fn._compiled_call_impl if in_place else fn
    arguments = fn._tracework.arguments if isinstance(fn, CompiledModule) else getattr(compiled, ARGUMENTS, None)
    return (
        (None, None) if arguments is None else backends.apart(*(arguments[name] for name in ("backend", "mode", "options")))[:2]
    )


def uncompiled_form(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a compiled one was made of; another one as it is."""
    if isinstance(fn, CompiledModule):
        return fn._orig_mod
    if isinstance(fn, torch.nn.Module) and fn._compiled_call_impl is not None:
        return entry_function(fn, "_call_impl")
    return with_a_frame(getattr(fn, "_torchdynamo_orig_callable", fn))
