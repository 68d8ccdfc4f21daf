"""Trial: compiles and runs a program stage by stage, and says which is the first that fails."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import tracework_aotautograd as aotautograd
import tracework_inductor as inductor
import tracework_primops as primops
import tracework_runtime as runtime
from tracework_primops import TensorSpec
from tracework_primops.graph.prim_graph import bind_symbols
from tracework_primops.graph.prim_graph import call as run_node

from .. import _torch, assemble
from ..cases import CaseError
from ..entry_store import recorded, runtime_options
from ..observe import nothing
from ..options import Options
from ..reports.text import duration
from .envelope import Difference, compare, layout_difference
from .program import Program, copied, laid_out, same_random_numbers
from .slow import KernelTime, kernel_times

SLOWER = 2.0
"""How many times as long as eager's kernels compiled code may take before it is called slow."""
NOTICED = 50e-6
"""Seconds that it has to take longer, too: a graph of few small operators costs as much as its call."""
RUNS = 7
CALLS = 3
"""How often compiled code is called: what is recorded, and what is kept of a call for the next, is wrong from the second or third on."""
ENOUGH = 1.0
"""Seconds after which no more runs are measured."""
STAGES = {
    "functional": "aotautograd, which makes one functional graph of the captured one",
    "primops": "primops, which decomposes operators and simplifies the graph",
    "inductor": "inductor, which lowers, fuses and writes kernels",
    "runtime": "runtime, which builds, loads and runs kernels",
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """kind: "raises", "values", "layout" or "slow". stage: a key of STAGES. what: as text. error: name of the exception's class.
    program: the one that the stage was given. times: how many times as long as eager where it is slow, as much as is allowed where values are
    off. location: the user's line, where the
    stage itself names one. operator: that it names."""

    kind: str
    stage: str
    what: str
    program: Program
    error: str = ""
    times: float = 0.0
    location: str = ""
    operator: str = ""

    def same(self, other: Failure | None) -> bool:
        """Whether another trial failed in the same way."""
        if other is None or (self.kind, self.stage, self.error) != (other.kind, other.stage, other.error):
            return False
        if self.operator.partition(" ")[0] != other.operator.partition(" ")[0]:
            return False
        return self.kind != "slow" or other.times >= max(SLOWER, self.times / 4)


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What bisect turns: how many of PRIM_PASSES run, from the first (None: all), options of inductor, and of aotautograd, and whether graphs
    are recorded as CUDA graphs where the options say so."""

    prim_passes: int | None = None
    inductor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    aot: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recorded: bool = True


@dataclasses.dataclass
class Trial:
    """options: of the case. slowness: whether compiled code that is slow is a failure. seen: told of each stage that was passed.
    since, until: the first and the last stage of interest; empty for all. raising: whether only exceptions are. limits: whether `times`
    receives what each kernel takes, with the limits of the machine."""

    options: Options
    slowness: bool = False
    knobs: Knobs = Knobs()
    until: str = ""
    since: str = ""
    raising: bool = False
    limits: bool = False
    times: list[KernelTime] = dataclasses.field(default_factory=list)
    seen: Callable[[str, str, str], None] = lambda stage, role, verdict: None
    tries: int = 0

    def __post_init__(self) -> None:
        self._compiler = assemble.GraphCompiler(self.options, assemble.Stage(nothing))
        self._runtime = runtime_options(self.options)

    def turned(self, **knobs: Any) -> Trial:
        """The same with other knobs."""
        return Trial(self.options, self.slowness, dataclasses.replace(self.knobs, **knobs), self.until, self.since, self.raising)

    @classmethod
    def for_failure(cls, options: Options, failure: Failure) -> Trial:
        """One that finds out whether other programs fail in the same way."""
        of_a_fake = failure.kind == "layout" and failure.stage == "functional"
        until = "primops" if of_a_fake else failure.stage
        return cls(options, failure.kind == "slow", until=until, since=failure.stage, raising=failure.kind == "raises")

    def _compares(self, stage: str) -> bool:
        """Whether values of a stage are looked at."""
        order = list(STAGES)
        return not self.raising and (not self.since or order.index(stage) >= order.index(self.since))

    def __call__(self, program: Program) -> Failure | None:
        """The first failure; None where everything is as it should be. Raises CaseError where eager's kernels cannot run the program."""
        self.tries += 1
        with same_random_numbers():
            if program.level == "captured":
                return self._captured(program)
            return self._pieces([program]) if program.level == "functional" else self._prims(program)

    def inductor_options(self) -> inductor.InductorOptions:
        """What inductor is told."""
        return dataclasses.replace(self._compiler.inductor.under(runtime.Settings.now()), **self.knobs.inductor)

    # stages -----------------------------------------------------------------------------------------------------------------

    def _captured(self, program: Program) -> Failure | None:
        captured, compares = program.module(), self._compares("functional")
        expected = _eagerly(program, _with_gradients) if compares else []
        reference = _wider(program, _with_gradients) if compares else None
        pieces: list[Program] = []

        def compiler(gm: torch.fx.GraphModule, spec: Any) -> Callable[[list[Any]], Any]:
            functional = aotautograd.functional_graph(gm, spec)
            run = _torch.below_views(gm)

            def call(inputs: list[Any]) -> Any:
                pieces.append(Program.of(functional, "functional", copied(inputs)))
                return run(inputs)

            return call

        def compiled(given: Sequence[Any]) -> tuple[Any, ...]:
            facts = {**self._compiler.facts, "channels_last": self.options.numerics == "default", **self.knobs.aot}
            call = aotautograd.aot_compile(
                captured,
                given,
                forward_compiler=compiler,
                options=dataclasses.replace(assemble.aot_options(self.options), **facts),
                report=lambda reason, place: None,
            )
            return call(*given)

        try:
            got = _gradients_too(compiled, program.inputs)
        except Exception as error:
            return _raised("functional", error, program)
        count = len(program.outputs)
        if compares:
            difference = compare(got[:count], expected[:count], reference and reference[:count], coarsest=program.coarsest)
            difference = difference or compare(got, expected, reference, layouts=False, coarsest=program.coarsest)
            if difference is not None:
                return self._differs("functional", difference, program)
        self.seen("functional", "", "agrees with eager")
        return self._pieces(pieces)

    def _pieces(self, pieces: Sequence[Program]) -> Failure | None:
        """Functional graphs: what nothing is built for is looked at first, of all of them."""
        prims: list[tuple[Program, Program]] = []
        for piece in pieces if self.until != "functional" else ():
            found = self._functional(piece)
            if isinstance(found, Failure):
                return found
            prims.append((found, piece))
        for piece, operators in prims if self.until != "primops" else ():
            failed = self._prims(piece, operators)
            if failed is not None:
                return failed
        return None

    def _functional(self, program: Program) -> Failure | Program:
        """The first failure, or the graph in prims."""
        compares = self._compares("primops")
        expected = _eagerly(program, _outputs) if compares else []
        wrong = _first_other_layout(program) if self._compares("functional") else None
        if wrong is not None:
            node, what = wrong
            return Failure("layout", "functional", what, program, location=node.meta.get("origin") or "", operator=_name(node))
        try:
            prims = self._decomposed(program)
        except Exception as error:
            return _raised("primops", error, program)
        if compares or self.until == "primops":
            try:
                got = _outputs(prims.run, prims.inputs, program.inputs, prims)
            except Exception as error:
                return _raised("primops", error, program)
        if compares:
            difference = compare(got, expected, _wider(program, _outputs), layouts=False, coarsest=program.coarsest)
            if difference is not None:
                return self._differs("primops", difference, program)
        self.seen("primops", program.role, "agrees with eager")
        return dataclasses.replace(prims, inputs=program.inputs)

    def _decomposed(self, program: Program) -> Program:
        gm, spec = aotautograd.functional_module(program.prims())
        passes = primops.PRIM_PASSES if self.knobs.prim_passes is None else primops.PRIM_PASSES[: self.knobs.prim_passes]
        return Program.of(self._compiler.prims(gm, spec, passes), "prim", program.inputs)

    def _prims(self, program: Program, operators: Program | None = None) -> Failure | None:
        """operators: the same graph of those that eager runs."""
        graph, compares = program.prims(), self._compares("runtime")
        expected = _eagerly(program, _outputs) if compares else []
        reference = _wider(program, _outputs) if compares else None
        try:
            artifact = inductor.compile_graph(graph, self.inductor_options(), runtime=self._runtime)
        except Exception as error:
            return _raised("inductor", error, program)
        if self.until == "inductor" and self.raising:
            return None
        try:
            call = self._loaded(artifact)
            for number in range(1, CALLS + 1):
                got = _outputs(lambda inputs: tuple(call(list(inputs))), program.inputs, program.inputs, program)
                if not compares:
                    return None
                difference = compare(got, expected, reference, layouts=False, coarsest=program.coarsest)
                difference = difference or _other_layout_of_outputs(program, got)
                if difference is not None:
                    return self._differs("inductor" if number == 1 else "runtime", difference, program, number)
        except Exception as error:
            return _raised("runtime", error, program)
        if self.slowness:
            eager, mine = _seconds(program.run, lambda inputs: call(list(inputs)), program.inputs)
            if mine > SLOWER * eager and mine - eager > NOTICED:
                what = f"{mine * 1e6:.0f} us where eager's kernels take {eager * 1e6:.0f}"
                return Failure("slow", "inductor", what, program, times=mine / eager)
            if (slow := self._slow_kernel(program, operators or program, artifact)) is not None:
                return slow
        self.seen("inductor", program.role, "agrees with eager")
        return None

    def _loaded(self, artifact: runtime.Artifact) -> Callable[[list[Any]], Any]:
        """As compile() calls it: as CUDA graphs where the options say so."""
        loaded = runtime.load(artifact, self._runtime, check_inputs=False)
        return recorded(loaded, self.options, None) if self.knobs.recorded else loaded

    def _slow_kernel(self, program: Program, operators: Program, artifact: runtime.Artifact) -> Failure | None:
        """The kernel that loses most where it is slower than eager's operators are, twice measured; a part of the time of a graph, it does not
        make the whole slow."""
        for _ in range(2):
            loaded = runtime.load(artifact, self._runtime, check_inputs=False)
            with _plainly():
                times = kernel_times(program, operators, loaded, self.limits)
            self.times += times if self.limits else ()
            # where none of eager's operators was seen there is nothing to compare with
            worst = max((k for k in times if k.eager), key=lambda k: k.us - k.eager, default=None)
            if worst is None or worst.us <= SLOWER * worst.eager or 1e-6 * (worst.us - worst.eager) <= NOTICED:
                return None
        assert worst is not None
        what = f"kernel {worst.name} takes {duration(worst.us)} where eager's operators take {duration(worst.eager)}"
        return Failure("slow", "inductor", what, program, times=worst.us / worst.eager, location=worst.place)

    def _differs(self, stage: str, difference: Difference, program: Program, number: int = 1) -> Failure:
        what = f"result {difference.place}{'' if number == 1 else f' of call {number}'} is {difference.what}"
        return Failure(difference.kind, stage, what, program, times=difference.times)


def _raised(stage: str, error: Exception, program: Program) -> Failure:
    location = getattr(error, "location", None) or getattr(error, "origin", None) or ""
    what = getattr(error, "excerpt", "") or str(error)
    return Failure(
        "raises", stage, what, program, type(error).__name__, location=location, operator=getattr(error, "op", None) or ""
    )


def _name(node: torch.fx.Node) -> str:
    return f"{node.target} (%{node.name})"


Run = Callable[[Sequence[Any]], Sequence[Any]]


@contextmanager
def _plainly() -> Iterator[None]:
    """Without gradients and casts, which functional graphs have in them. Gradients are on, for kernels that give what their backward needs
    only then, and autograd sees nothing."""
    with torch.enable_grad(), _torch.below_autograd(), same_random_numbers():
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield


def _outputs(run: Run, inputs: Sequence[Any], given: Sequence[Any], program: Program) -> list[Any]:
    """Results, and what inputs are afterwards that the graph writes to."""
    own = copied(given)
    kept = list(own)
    with _plainly():
        found = list(run(own))
    for place, node in enumerate(program.outputs):
        if isinstance(node, torch.fx.Node) and _has_unknown_size(node.meta["spec"]):
            found[place] = None
    names = [n.name for n in program.placeholders]
    return found + [x for name, x in zip(names, kept) if name in program.flags and program.flags[name].is_mutated]


def _with_gradients(run: Run, inputs: Sequence[Any], given: Sequence[Any], program: Program) -> list[Any]:
    return _gradients_too(run, given)


def _gradients_too(run: Run, given: Sequence[Any]) -> list[Any]:
    """Results, what tensors among the inputs are afterwards, and their gradients, of cotangents that are the same in each run."""
    own = copied(given)
    tensors = [x for x in own if isinstance(x, torch.Tensor)]
    leaves = [x for x in tensors if x.requires_grad]
    with same_random_numbers():
        found = list(run(own))
        ends = [x for x in found if isinstance(x, torch.Tensor) and x.requires_grad]
        gradients: Sequence[Any] = ()
        if ends and leaves:
            generator = torch.Generator().manual_seed(0)
            weights = [torch.rand(x.shape, generator=generator, dtype=torch.float64).add_(0.5).to(x) for x in ends]
            gradients = torch.autograd.grad(ends, leaves, weights, allow_unused=True)
    return [*found, *tensors, *gradients]


def _eagerly(program: Program, how: Callable[..., list[Any]]) -> list[Any]:
    try:
        return how(program.run, program.inputs, program.inputs, program)
    except Exception as error:
        raise CaseError(f"eager's kernels cannot run the program: {type(error).__name__}: {error}") from error


def _wider(program: Program, how: Callable[..., list[Any]]) -> list[Any] | None:
    """The results in float64, with the random numbers that eager draws; None where the program has none, as one that reads the bits of
    numbers, or one of torch's functions that draws some, through which gradients go."""
    before = torch.get_default_dtype()
    drawn: dict[str, Any] = {}
    try:
        with same_random_numbers():
            program.values(drawn=drawn)
        if drawn and program.level == "captured":
            return None
        torch.set_default_dtype(torch.float64)
        wide = program.wider()
        return how(lambda inputs: wide.run(inputs, drawn), wide.inputs, wide.inputs, wide)
    except Exception:  # whatever a kernel says to dtypes that the program did not foresee
        return None
    finally:
        torch.set_default_dtype(before)


def _first_other_layout(program: Program) -> tuple[torch.fx.Node, str] | None:
    """The first node that gives another tensor than its spec says, of operands that lie as theirs say."""
    found: dict[torch.fx.Node, Any] = dict(zip(program.placeholders, copied(program.inputs), strict=True))
    symbols = bind_symbols([n.meta["spec"] for n in program.placeholders], program.inputs)
    with _plainly():
        for node in program.calls:
            spec, value = node.meta["spec"], run_node(node, found, symbols)
            found[node] = laid_out(value, spec, symbols)
            if not isinstance(spec, TensorSpec) or not isinstance(value, torch.Tensor) or _has_unknown_size(spec):
                continue
            what = layout_difference(value, *_numbers(spec, symbols), spec.dtype)
            if what is not None and not _is_chosen(node, spec, found, symbols):
                return node, f"its kernel gives {what}: the rule for its fake is wrong"
    return None


def _is_chosen(node: torch.fx.Node, spec: TensorSpec, found: Mapping[torch.fx.Node, Any], symbols: dict[Any, int]) -> bool:
    """Whether a node gives what its spec says where images lie channels-last among its operands: the layout of images says how results lie,
    and the lowering of what reads images lays these out."""
    last = {n: _last(found[n]) for n in node.all_input_nodes}
    if all(last[n] is found[n] for n in last):
        return False
    return layout_difference(run_node(node, last, symbols), *_numbers(spec, symbols), spec.dtype) is None


def _last(value: Any) -> Any:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if not isinstance(value, torch.Tensor) or value.dim() not in formats:
        return value
    return value.contiguous(memory_format=formats[value.dim()])


def _has_unknown_size(spec: Any) -> bool:
    """Bytes that a kernel keeps for its backward, how many and which only the kernel knows: fakes say none."""
    return isinstance(spec, TensorSpec) and spec.dtype is torch.uint8 and tuple(spec.sizes) == (0,)


def _other_layout_of_outputs(program: Program, got: Sequence[Any]) -> Difference | None:
    symbols = bind_symbols([n.meta["spec"] for n in program.placeholders], program.inputs)
    for place, node in enumerate(program.outputs):
        spec = node.meta["spec"] if isinstance(node, torch.fx.Node) else None
        if isinstance(spec, TensorSpec) and not _has_unknown_size(spec):
            what = layout_difference(got[place], *_numbers(spec, symbols), spec.dtype)
            if what is not None:
                return Difference(place, f"of {what}", "layout")
    return None


def _numbers(spec: TensorSpec, symbols: Mapping[Any, int]) -> tuple[list[int], list[int]]:
    def number(size: Any) -> int:
        return size if isinstance(size, int) else size.evaluate(symbols)

    return [number(s) for s in spec.sizes], [number(s) for s in spec.strides]


def _seconds(first: Run, second: Run, inputs: Sequence[Any]) -> tuple[float, float]:
    """The shortest of some runs of two, in turns: others on the machine make runs longer, and never shorter."""
    runs: dict[Run, tuple[list[Any], list[float]]] = {run: (copied(inputs), []) for run in (first, second)}
    wait = torch.cuda.synchronize if any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs) else lambda: None
    with _plainly():
        began = time.perf_counter()
        for number in range(RUNS + 2):
            for run, (own, times) in runs.items():
                wait()
                begin = time.perf_counter()
                run(own)
                wait()
                times += [time.perf_counter() - begin]
            if number > 2 and time.perf_counter() - began > ENOUGH:
                break
    mine, other = (min(times) for _, times in runs.values())
    return mine, other


__all__ = ["STAGES", "Failure", "Knobs", "Trial"]
