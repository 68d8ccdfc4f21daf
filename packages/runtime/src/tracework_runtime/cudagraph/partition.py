"""A host program cut into parts: those that are recorded as CUDA graphs, and what runs between them.

A line that computes runs between where it computes on the CPU, or calls what cannot be recorded (facts.py); memory is made in the part that
uses it first and given back in the one that uses it last. Lines keep their order: the compiler that wrote them has put together what runs
between.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from tracework_runtime.artifact import Artifact, KernelSource
from tracework_runtime.cudagraph.facts import why_unrecordable
from tracework_runtime.cudagraph.refusals import BETWEEN, CPU_WORK, CUDAGRAPH_REFUSALS, places_of, refusals
from tracework_runtime.host.lines import (
    Address,
    Allocate,
    Bind,
    Call,
    Free,
    Inputs,
    Launch,
    Line,
    Number,
    Return,
    Reuse,
    Take,
)

__all__ = ["GIVEN", "Part", "partition", "parts_of"]

LEAST_WORK = 4
"""Fewer kernels, a library call counted as CALL_WORK, take less time by themselves than a replay does."""
CALL_WORK = 3
GIVEN = "_given"
"""What is put behind a symbol's name for the input of a part that has its value."""
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclasses.dataclass(frozen=True)
class Part:
    """Lines that run together: a host program of its own.

    inputs: names whose tensors or numbers it takes. symbols: those that it takes the values of, after the inputs. outputs: names, or in
    the last part texts, that it gives. written: inputs whose memory it writes to. reasons: why it is not recorded; none for what would not
    win.
    """

    lines: tuple[Line, ...]
    inputs: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()
    recordable: bool = True
    reasons: tuple[str, ...] = ()


@dataclasses.dataclass
class _Run:
    """Lines in turn of one kind. sized: their sizes depend on data."""

    recordable: bool
    sized: bool = False
    lines: list[Line] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)


def parts_of(artifact: Artifact) -> tuple[Part, ...]:
    """The parts of an artifact that is not recorded as a whole; none where no part would be, or all together are."""
    if refusals(artifact, [name for name in CUDAGRAPH_REFUSALS if name not in BETWEEN]):
        return ()
    between = refusals(artifact, BETWEEN)
    if not between and not any(binding.of_data for binding in artifact.symbols):
        return ()
    parts = partition(artifact)
    cut = [part for part in parts if any(map(_computes, part.lines))]
    return parts if any(part.recordable for part in cut) and (between or len(cut) > 1) else ()


def partition(artifact: Artifact, unsafe: frozenset[str] = frozenset()) -> tuple[Part, ...]:
    """The parts in order. The first gives the symbols' values if there are any, the last the results; neither is recorded.

    unsafe: operators that proved not to be recordable. None, if lines are missing or share one workspace.
    """
    lines = artifact.host_lines
    if not lines or any(isinstance(line, Take) for line in lines):
        return ()
    bound, numbers, body, end = _apart(lines)
    symbols = tuple(line.symbol for line in bound)
    sizes = _Sizes(artifact, symbols)
    runs = _with_memory(_grouped([*_runs(artifact, body, unsafe, sizes), _Run(False, lines=end)]))
    parts = [_part(run, sizes, numbers) for run in runs]
    if bound:
        names = tuple(dict.fromkeys(name for line in bound for name in line.reads if name not in symbols))
        start = Part((Inputs(names), *bound, Return(symbols, symbols)), names, outputs=symbols, recordable=False)
        parts.insert(0, start)
    return tuple(_with_outputs(parts))


class _Sizes:
    """Which symbols the sizes of each name depend on, as lines make them."""

    def __init__(self, artifact: Artifact, symbols: Sequence[str]) -> None:
        self.symbols = frozenset(symbols)
        self._of_data = frozenset(b.name for b in artifact.symbols if b.of_data)
        self._of: dict[str, frozenset[str]] = {c.name: self._named((*c.sizes, *c.strides)) for c in artifact.checks}
        names = artifact.inputs or ()
        self._of.update({names[b.index]: self._named((b.name,)) for b in artifact.symbols if b.kind == "value" and names})

    def of(self, names: Iterable[str]) -> frozenset[str]:
        """Those of several names together."""
        return frozenset().union(*(self._of.get(name, frozenset()) for name in names))

    def named(self, line: Line) -> frozenset[str]:
        """The symbols that a line mentions."""
        match line:
            case Allocate():
                return self._named((*line.sizes, *line.strides))
            case Launch():
                return self._named(o.offset if isinstance(o, Address) else o for o in line.operands)
            case Reuse():
                return self._named((line.view,))
            case Return():
                return self._named(line.values)
            case Call():
                return self._named(line.text)
            case _:
                return frozenset()

    def made(self, line: Line) -> None:
        """Takes down the sizes of what a line makes."""
        match line:
            case Allocate(name):
                self._of[name] = self.named(line)
            case Reuse(new, old, view):
                self._of[new] = self.named(line) if view else self.of((old,))
            case Call():
                self._of.update(dict.fromkeys(line.writes, self.symbols & frozenset(line.symbols)))

    def depend_on_data(self, line: Line) -> bool:
        """Whether a line works on sizes that depend on data."""
        touched = self.named(line) | (self.of((*line.reads, *line.writes)) if isinstance(line, Call) else frozenset())
        return not self._of_data.isdisjoint(touched)

    def _named(self, texts: Iterable[object]) -> frozenset[str]:
        if not self.symbols:
            return frozenset()
        return self.symbols & {word for text in texts if isinstance(text, str) for word in _WORD.findall(text)}


def _apart(lines: Sequence[Line]) -> tuple[list[Bind], list[Number], list[Line], list[Line]]:
    """What binds symbols, what puts numbers into memory, what computes, and what only looks at results."""
    bound = [line for line in lines if isinstance(line, Bind)]
    numbers = [line for line in lines if isinstance(line, Number)]
    rest: list[Line] = [line for line in lines[1:] if not isinstance(line, (Bind, Number))]
    first = len(rest) - 1
    while first and isinstance(line := rest[first - 1], Call) and not _computes(line):
        first -= 1
    return bound, numbers, rest[:first], rest[first:]


def _computes(line: Line) -> bool:
    """Whether a line is more than memory: calls without operators make some, or look at what was made."""
    return isinstance(line, Launch) or (isinstance(line, Call) and bool(line.operators))


def _reason(artifact: Artifact, kernels: Mapping[str, KernelSource], line: Line, unsafe: frozenset[str]) -> str:
    """Why a line that computes is not recorded."""
    operators: tuple[str, ...] = getattr(line, "operators", ())
    facts = dict.fromkeys(fact for name in operators if (fact := why_unrecordable(name)))
    places = "; ".join(places_of(artifact, operators))
    if facts:
        return "; ".join(f"{fact}: {CUDAGRAPH_REFUSALS[fact][1]} ({places})" for fact in facts)
    if not unsafe.isdisjoint(operators):
        return f"recording it failed ({places})"
    if isinstance(line, Launch):
        on_cpu, places = kernels[line.function].language == "cpp", "; ".join(places_of(artifact, [line.function]))
    else:
        devices = line.devices if isinstance(line, Call) else ()
        on_cpu = any(device.startswith("cpu") for device in devices)
    return f"{CPU_WORK}: {CUDAGRAPH_REFUSALS[CPU_WORK][1]} ({places})" if on_cpu else ""


def _runs(artifact: Artifact, lines: Sequence[Line], unsafe: frozenset[str], sizes: _Sizes) -> list[_Run]:
    """Cut where lines that are recorded begin and end, and among these where sizes begin and end to depend on data."""
    kernels = {kernel.name: kernel for kernel in artifact.kernels}
    runs: list[_Run] = []
    memory: list[Line] = []  # for the next line that computes
    for line in lines:
        sizes.made(line)
        if isinstance(line, Free):
            (runs[-1].lines if runs and not memory else memory).append(line)
            continue
        if not _computes(line) and not _is_on_cpu(line):
            memory.append(line)
            continue
        reason = _reason(artifact, kernels, line, unsafe) if _computes(line) else ""
        recordable = not reason and _computes(line)
        kind = recordable, recordable and sizes.depend_on_data(line)
        if not runs or (runs[-1].recordable, runs[-1].sized) != kind:
            runs.append(_Run(*kind))
        runs[-1].lines += [*memory, line]
        runs[-1].reasons += [reason] if reason else []
        memory = []
    if memory:
        runs = runs or [_Run(False)]
        runs[-1].lines += memory
    return runs


def _is_on_cpu(line: Line) -> bool:
    """Whether a line makes memory there, which a recording would hand out again and again."""
    return (isinstance(line, Allocate) and line.device == "cpu") or (isinstance(line, Call) and "cpu" in line.devices)


def _grouped(runs: list[_Run]) -> list[_Run]:
    """The runs that are too small to win are put together with those beside them."""
    found: list[_Run] = []
    for run in runs:
        recordable = run.recordable and _work(run.lines) >= LEAST_WORK
        kind = recordable, recordable and run.sized
        if found and (found[-1].recordable, found[-1].sized) == kind:
            found[-1].lines += run.lines
            found[-1].reasons += run.reasons
        else:
            found.append(_Run(*kind, list(run.lines), list(run.reasons)))
    return found


def _work(lines: Iterable[Line]) -> int:
    return sum(1 if isinstance(line, Launch) else CALL_WORK if _computes(line) else 0 for line in lines)


def _with_memory(runs: list[_Run]) -> list[_Run]:
    """What a run frees and does not touch otherwise is freed where the caller of the parts forgets it."""
    for run in runs:
        touched: set[str] = set()
        kept: list[Line] = []
        for line in run.lines:
            if isinstance(line, Free):
                names = tuple(name for name in line.names if name in touched)
                kept += [Free(names)] if names else []
                continue
            touched.update(_reads(line), _makes(line))
            kept.append(line)
        run.lines = kept
    return runs


def _reads(line: Line) -> tuple[str, ...]:
    """The names that a line needs, symbols not counted."""
    match line:
        case Launch(_, operands):
            return tuple(o.name for o in operands if isinstance(o, Address))
        case Reuse(_, old) | Number(_, old):
            return (old,)
        case Call(_, reads) | Return(_, reads):
            return reads
        case _:
            return ()


def _makes(line: Line) -> tuple[str, ...]:
    match line:
        case Allocate(name) | Reuse(name) | Number(name):
            return (name,)
        case Call():
            return line.writes
        case _:
            return ()


def _changes(line: Line) -> tuple[str, ...]:
    """The names whose memory a line writes to."""
    match line:
        case Launch():
            return line.writes
        case Call():
            return line.changes
        case _:
            return ()


def _part(run: _Run, sizes: _Sizes, numbers: Sequence[Number]) -> Part:
    """Without its outputs, which its followers decide. It puts the numbers that it reads into memory itself."""
    read = {name for line in run.lines for name in _reads(line)}
    run.lines = [*(number for number in numbers if number.name in read), *run.lines]
    made: set[str] = set()
    inputs: dict[str, None] = {}
    memory: dict[str, str] = {}
    written: set[str] = set()
    for line in run.lines:
        inputs.update(dict.fromkeys(name for name in _reads(line) if name not in made and name not in sizes.symbols))
        made.update(_makes(line))
        if isinstance(line, Reuse):
            memory[line.new] = memory.get(line.old, line.old)
        written.update(memory.get(name, name) for name in _changes(line))
    named = frozenset().union(*map(sizes.named, run.lines))
    return Part(
        tuple(run.lines),
        tuple(inputs),
        tuple(sorted(named | sizes.of(inputs) if run.recordable else named)),
        written=frozenset(written & inputs.keys()),
        recordable=run.recordable,
        reasons=tuple(dict.fromkeys(run.reasons)),
    )


def _with_outputs(parts: Sequence[Part]) -> list[Part]:
    """Each part gives what later ones take, as a program of its own."""
    found: list[Part] = []
    wanted: set[str] = set()
    for part in reversed(parts):
        if isinstance(part.lines[0] if part.lines else None, Inputs):
            found.append(part)
            continue
        end = part.lines[-1] if part.lines else None
        if isinstance(end, Return):
            body, outputs, returned = part.lines[:-1], end.values, end
        else:
            made = [name for line in part.lines for name in _makes(line)]
            outputs = tuple(name for name in dict.fromkeys(made) if name in wanted)
            body, returned = part.lines, Return(outputs, outputs)
        given = tuple(s + GIVEN for s in part.symbols)
        bound = [Bind(s, name, (name,)) for s, name in zip(part.symbols, given, strict=True)]
        lines = (Inputs((*part.inputs, *given)), *bound, *body, returned)
        found.append(dataclasses.replace(part, lines=lines, outputs=outputs))
        wanted.update(part.inputs)
    return found[::-1]
