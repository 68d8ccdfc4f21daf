"""PartitionedFn: a function in parts, of which those that can be are recorded as CUDA graphs, each by itself.

What one part gives belongs to the call: it ends with its last reader. A recorded part that reads it finds it where it was the call before, in
the memory of the recording that made it.
"""

from __future__ import annotations

import dataclasses
import functools
import linecache
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from tracework_runtime.artifact import Artifact
from tracework_runtime.cudagraph import record
from tracework_runtime.cudagraph.partition import GIVEN, Part, partition
from tracework_runtime.cudagraph.record import GraphedFn
from tracework_runtime.cudagraph.recording import Recording
from tracework_runtime.host.lines import Call, Line, input_names
from tracework_runtime.host.program import NotInterpreted, host_program
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["PartitionedFn", "around_failure"]

Inputs = list[Any]


@dataclasses.dataclass(frozen=True)
class _Step:
    """A part of a call, over the numbered values of it. takes: its inputs; ended: those that nobody reads later; gives: its results."""

    call: Callable[[Inputs], tuple[Any, ...]]
    takes: tuple[int, ...]
    ended: tuple[int, ...]
    gives: tuple[int, ...]


class PartitionedFn:
    """Like the CompiledFn it wraps: `fn(list_of_inputs) -> tuple`.

    parts: what it was cut into; graphed: those that are recorded, each with its own recordings and reasons.
    Raises NotInterpreted where a kernel can be called by Python alone.
    """

    __tracework_boxed__ = True

    def __init__(
        self, compiled: Any, parts: Sequence[Part], options: RuntimeOptions = DEFAULT_OPTIONS, engine: Any = None
    ) -> None:
        self.compiled, self.options, self.engine = compiled, options, engine or record.ENGINE
        self.artifact, self.check, self.parts = compiled.artifact, compiled.check, tuple(parts)
        gpus = sorted(name for name in self.artifact.devices if name.startswith("cuda"))
        self.device = int(gpus[0].partition(":")[2] or 0) if gpus else 0
        self.graphed: list[GraphedFn] = []
        self._numbers: dict[str, int] = {}
        for name in input_names(self.artifact.host_lines):
            self._number(name)
        self._inputs = len(self._numbers)
        *steps, last = [self._step(n, part) for n, part in enumerate(self.parts)]
        self._steps = tuple((step.call, step.takes, step.ended, step.gives) for step in steps)
        self._last = last.call, last.takes

    def __repr__(self) -> str:
        return f"<PartitionedFn of {self.compiled!r} with {len(self.graphed)} recorded parts>"

    @property
    def recordings(self) -> list[Recording]:
        """Those that are alive."""
        return [recording for graphed in self.graphed for recording in graphed.recordings]

    @property
    def made(self) -> int:
        """How many recordings there were."""
        return sum(graphed.made for graphed in self.graphed)

    @property
    def replays(self) -> int:
        """How many replays of parts there were."""
        return sum(graphed.replays for graphed in self.graphed)

    @property
    def plain(self) -> int:
        """How many calls of recorded parts ran kernel by kernel."""
        return sum(graphed.plain for graphed in self.graphed)

    def most_recordings(self) -> int:
        """How many may have been made by now."""
        return sum(graphed.most_recordings() for graphed in self.graphed)

    def reasons(self) -> tuple[str, ...]:
        """Why parts run kernel by kernel."""
        between = [reason for part in self.parts for reason in part.reasons]
        return tuple(dict.fromkeys([*between, *(reason for graphed in self.graphed for reason in graphed.reasons())]))

    def __call__(self, inputs: Inputs) -> tuple[Any, ...]:
        if self.check is not None:
            self.check(inputs)
        if self.engine.current_device() == self.device:
            return self._call(inputs)
        with self.engine.on(self.device):
            return self._call(inputs)

    def _call(self, inputs: Inputs) -> tuple[Any, ...]:
        values = [*inputs, *[None] * (len(self._numbers) - self._inputs)]
        inputs.clear()
        for call, takes, ended, gives in self._steps:
            taken = [values[n] for n in takes]
            for n in ended:
                values[n] = None
            for n, value in zip(gives, call(taken), strict=True):
                values[n] = value
        call, takes = self._last
        taken = [values[n] for n in takes]
        del values
        return call(taken)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _step(self, n: int, part: Part) -> _Step:
        takes = (*part.inputs, *part.symbols)
        later = {name for other in self.parts[n + 1 :] for name in (*other.inputs, *other.symbols)}
        ended = tuple(self._number(name) for name in takes if name not in later)
        gives = tuple(map(self._number, part.outputs)) if n + 1 < len(self.parts) else ()
        return _Step(self._function(n, part), tuple(map(self._number, takes)), ended, gives)

    def _function(self, n: int, part: Part) -> Callable[[Inputs], tuple[Any, ...]]:
        artifact = _part_artifact(self.artifact, n, part)
        namespace = {**self.compiled.namespace}
        namespace["call"] = host_program(artifact, namespace)
        if not part.recordable:
            return namespace["call"]
        compiled = type(self.compiled)(artifact, namespace)
        graphed = GraphedFn(compiled, self.options, self.engine)
        graphed.in_parts = functools.partial(around_failure, compiled, self.options, self.engine)
        self.graphed.append(graphed)
        return graphed


def around_failure(compiled: Any, options: RuntimeOptions, engine: Any, error: BaseException) -> PartitionedFn | None:
    """The function with recorded parts around the library call that raised the error while it was recorded; None where that is not known."""
    if not options.graph_partition:
        return None
    met: BaseException | None = error  # and what it came in the handling of
    statements: set[str] = set()
    while met is not None:
        statements |= {linecache.getline(f.filename, f.lineno or 0).strip() for f in traceback.extract_tb(met.__traceback__)}
        met = met.__context__
    calls = [line for line in compiled.artifact.host_lines if isinstance(line, Call) and not statements.isdisjoint(line.text)]
    parts = partition(compiled.artifact, frozenset(name for line in calls for name in line.operators)) if calls else ()
    if not any(part.recordable for part in parts):
        return None
    try:
        return PartitionedFn(compiled, parts, options, engine)
    except NotInterpreted:
        return None


def _part_artifact(artifact: Artifact, n: int, part: Part) -> Artifact:
    """A part as a program of its own, with inputs of its own."""
    names = (*part.inputs, *(symbol + GIVEN for symbol in part.symbols))
    known = {name: number for number, name in enumerate(input_names(artifact.host_lines))}
    stem = artifact.key if "." in artifact.key else artifact.key[:7]  # names of code have twelve characters of it
    static = {number for number, name in enumerate(part.inputs) if known.get(name) in artifact.static_inputs}
    return artifact.replace(
        key=f"{stem}.{n}",
        host_lines=part.lines,
        kernels=tuple(kernel for kernel in artifact.kernels if kernel.name in _functions(part.lines)),
        externs=frozenset(name for line in part.lines if isinstance(line, Call) for name in line.operators),
        checks=(),
        symbols=(),
        conditions=(),
        inputs=None if artifact.inputs is None else names,
        static_inputs=frozenset(static),
        mutated_inputs=frozenset(number for number, name in enumerate(part.inputs) if name in part.written),
    )


def _functions(lines: Sequence[Line]) -> set[str]:
    return {line.function for line in lines if hasattr(line, "function")}
