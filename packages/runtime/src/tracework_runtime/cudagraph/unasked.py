"""Recordings that nobody asked for: of functions whose launches take longer than their kernels.

To a program they are as if there were none. What they hand out is memory of the program's own, so that it may be used on any stream, all but
what a backward reads; while that is held, calls are plain. Only operators of torch are repeated, as one of somebody else may count its calls;
recordings keep little memory, none where the device is filling up, are measured to save a tenth of a call, and whatever speaks against one is a
line in the log and no warning.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime.artifact import Artifact
from tracework_runtime.cudagraph.record import GraphedFn
from tracework_runtime.cudagraph.refusals import refusals
from tracework_runtime.host.lines import Call, Launch, Number
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["RecordedWhereItPays", "recorded_where_it_pays"]

LEAST_LAUNCHES = 8
"""A replay costs the host about as much as launching this many kernels."""
WARMUP = 2
"""The number of the first call that is measured, counted from one."""
MEMORY_SHARE = 0.05
MOST_SIZES = 4
"""Combinations of sizes that do not pay, after which none is looked at any more."""
MOST_PLAIN = 256
"""Plain calls, for each replay eight more, after which there will be no recordings that win."""
LOOK_EVERY = 8
OURS = ("", "aten", "prims", "tracework")
"""Namespaces of operators that do the same whenever they are repeated, or say that they do not."""


def recorded_where_it_pays(
    compiled: Any, options: RuntimeOptions = DEFAULT_OPTIONS, engine: Any = None, visible: int | None = None
) -> Any:
    """A CompiledFn that is replayed once that is measured to win; the same object where it cannot, or is too small to.

    visible: how many outputs, from the first, a program gets to see; None for all. The others go to another CompiledFn on the same stream.
    """
    policy = options.cudagraph_policy
    if not _is_eligible(compiled.artifact) or policy is not None and policy(compiled) is not True:
        return compiled
    options = options.replace(
        cudagraph_warmup=WARMUP,
        cudagraph_memory_share=min(MEMORY_SHARE, options.cudagraph_memory_share),
        cudagraph_or_error=False,
    )
    return RecordedWhereItPays(compiled, options, engine, visible)


def _is_eligible(artifact: Artifact) -> bool:
    if not any(device.startswith("cuda") for device in artifact.devices) or os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return False
    lines = artifact.host_lines
    launches = sum(isinstance(line, (Call, Launch)) for line in lines)
    if launches < LEAST_LAUNCHES or not artifact.mutated_inputs <= artifact.static_inputs or _takes_numbers(artifact):
        return False
    return all(_namespace(name) in OURS for name in artifact.externs) and not refusals(artifact)


def _namespace(operator: str) -> str:
    before, separator, _ = operator.partition("::")
    return before if separator else ""


def _takes_numbers(artifact: Artifact) -> bool:
    """Whether numbers are among its inputs, each of which would take a recording of its own."""
    inputs = range(len(artifact.inputs or ()))
    checked = {check.index for check in artifact.checks}
    return any(isinstance(line, Number) for line in artifact.host_lines) or any(n not in checked for n in inputs)


class RecordedWhereItPays:
    """Like the CompiledFn it wraps: `fn(list_of_inputs) -> tuple`.

    graphed: what records and replays; None once it is known that it never will.
    """

    __tracework_boxed__ = True

    def __init__(self, compiled: Any, options: RuntimeOptions, engine: Any = None, visible: int | None = None) -> None:
        self.compiled, self.artifact, self.check = compiled, compiled.artifact, compiled.check
        graphed = GraphedFn(compiled, options, engine, asked=False, visible=visible)
        self.graphed: GraphedFn | None = None if graphed.segment.draws else graphed
        self._most_refused = MOST_SIZES if compiled.artifact.symbols else 1
        self._next_look = 0

    def __repr__(self) -> str:
        return repr(self.compiled)

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        graphed = self.graphed
        if graphed is None or _torch.dispatch_mode_count():  # a mode is told of each operator
            return self.compiled(inputs)
        if graphed.plain >= self._next_look:
            self._next_look = graphed.plain + LOOK_EVERY
            if self._is_settled(graphed):
                self.graphed = None
        try:
            return graphed(inputs)
        except torch.OutOfMemoryError:
            self.graphed = None  # and its memory with it
            raise

    def _is_settled(self, graphed: GraphedFn) -> bool:
        """Whether nothing will be recorded any more that wins. Processes of a group may wait for each other while one is measured."""
        if graphed.refusal or torch.distributed.is_available() and torch.distributed.is_initialized():
            return True
        known = list(graphed.calls.values())
        refused = sum(bool(calls.refusal or calls.gate.refusal) for calls in known)
        none_wins = refused >= self._most_refused and not any(calls.recordings for calls in known)
        return none_wins or graphed.plain > MOST_PLAIN + 8 * graphed.replays
