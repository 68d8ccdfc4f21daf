"""The one place where all five packages meet: captured graph -> callable, as backends of capture.

In one line: `optimize(backend=g)(fn)`, where `g(graph) = aot(graph, compiler=h)` and `h(graph) = load(inductor(prims))`.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
import tracework_aotautograd as aotautograd
import tracework_capture as capture
import tracework_inductor as inductor
import tracework_primops as primops
import tracework_runtime as runtime
from tracework_aotautograd.recipes import RECIPE
from tracework_aotautograd.rest import Rest
from tracework_capture.graph.text import parse_captured, print_captured

from . import _torch, activity, cases, logs, passes
from .entry_store import BACKWARD, check_named_compiler, recorded, runtime_options, with_recipe
from .errors import CompileError, TraceworkError
from .fx_lines import fx_lines, places
from .lazy_inputs import is_lazy, resolved
from .observe import Observe, instead_of, nothing, tell
from .options import Options, identity
from .user_line import levels_inside

AOT_STAGES = {"functional": "aotautograd", "between": "between", "attention": "attention"}
"""What observers call the products of aotautograd."""
RECORDED = frozenset({"cuda"})
"""Types of devices whose work is recorded as CUDA graphs."""
_CPU = torch.device("cpu")
_warned: set[str] = set()
"""What holds for the process and was warned of."""
ONE_OPERATOR = frozenset({"cuda"})
"""Types of devices on which attention that is written out is trained as one operator."""


class Stage:
    """Runs one stage where activity sees it, and turns its failure into a CompileError."""

    def __init__(self, observe: Observe, progress: bool | None = None) -> None:
        self.observe, self.progress = observe, progress

    def __call__(self, name: str, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What work(*args, **kwargs) gives."""
        try:
            with activity.stage(name, progress=self.progress):
                return work(*args, **kwargs)
        except TraceworkError:
            raise
        except Exception as error:
            raise CompileError(name, error, getattr(error, "location", None)) from error

    def observed(self, name: str, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The same, and the observer gets it."""
        product = self(name, work, *args, **kwargs)
        self.observe(name, product)
        tell(name, product)
        return product


def eager_backend(options: Options, observe: Observe) -> Callable[..., Any]:
    """Runs the captured graph as it is, its checkpoints as torch's own."""

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return aotautograd.uncompiled(gm)

    return backend


def aot_eager_backend(options: Options, observe: Observe) -> Callable[..., Any]:
    """Ahead-of-time autograd, then the eager kernels of forward and backward."""
    looked_at = functools.partial(runtime.looked_at, how=runtime_options(options).check_operators)
    return _ahead_of_time(options, observe, lambda gm, spec, report: _torch.below_views(gm, looked_at))


def cudagraphs_backend(options: Options, observe: Observe) -> Callable[..., Any]:
    """The same kernels, recorded as CUDA graphs."""
    chosen = runtime_options(options)

    def record(gm: torch.fx.GraphModule, spec: Any, report: aotautograd.Report) -> Callable[..., Any]:
        values = [node.meta.get("val") for node in gm.graph.nodes]
        lines, names = fx_lines(gm)
        artifact = runtime.Artifact(
            "cudagraphs",
            "",
            devices=frozenset(str(value.device) for value in values if isinstance(value, torch.Tensor)),
            static_inputs=spec.static_inputs,
            mutated_inputs=spec.mutated_inputs,
            externs=_torch.operator_names(gm),
            host_lines=lines,
            places=places(gm),
        )
        return runtime.cudagraph(runtime.CompiledFn(artifact, {**names, "call": _torch.below_views(gm)}), chosen)

    return _ahead_of_time(options, observe, record)


class Compile(Protocol):
    """What makes a callable of a functional graph, given its GraphSpec; it is called with one list of the inputs, which it may empty."""

    def __call__(self, gm: torch.fx.GraphModule, spec: Any, report: aotautograd.Report) -> Callable[..., Any]: ...


def _made_by(compile_: Compile, options: Options, resolve: Callable[..., Any] = lambda call, mutated: call) -> Compile:
    """A graph compiler of aotautograd. resolve: makes what was compiled take lazy inputs, where there are such."""

    def make(gm: torch.fx.GraphModule, spec: Any, report: aotautograd.Report) -> Callable[..., Any]:
        passes.on_functional(options, gm, spec)
        return _torch.with_warnings(resolve(compile_(gm, spec, report), spec.mutated_inputs))

    return _compilation(make, options)


def _ahead_of_time(
    options: Options,
    observe: Observe,
    forward: Compile,
    backward: Compile | None = None,
    prepare: Callable[[list[Any]], None] = lambda example_inputs: None,
    **facts: Any,
) -> Callable[..., Any]:
    """A backend that runs what `forward` makes of each functional graph, or `backward` of those that compute gradients.

    Args:
        prepare: called with the example inputs before a graph is traced.
        facts: fields of AotOptions.
    """
    stage = Stage(observe, options.progress)

    def seen(stage: str, product: Any) -> None:
        kept = getattr(product, "kept", None)
        if kept is not None and kept.bytes > kept.limit and options.memory_budget > 0:  # of none the fewest possible are meant
            warnings.warn(kept.text(), stacklevel=levels_inside())
        observe(AOT_STAGES[stage], product)
        tell(AOT_STAGES[stage], product)

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        prepare(example_inputs)
        passes.on_captured(options, gm)
        report = report_of(gm)
        resolve = resolved if any(map(is_lazy, example_inputs)) else lambda call, mutated: call
        try:
            call: Callable[..., Any] = stage(
                "aotautograd",
                aotautograd.aot_compile,
                gm,
                example_inputs,
                forward_compiler=functools.partial(_made_by(forward, options, resolve), report=report),
                backward_compiler=functools.partial(_made_by(backward or forward, options, resolve), report=report),
                options=aot_options(options, buckets=_torch.gradient_buckets(), text=text_of if options.cache else None, **facts),
                observe=seen,
                report=report,
            )
        except CompileError as error:  # the graph as it was captured, with the inputs of this call
            place = str(gm.meta.get("place", ""))
            cases.keep(lambda: cases.Case.of_captured(gm, example_inputs, options, place=place), error, options.dump_dir)
            raise
        return call

    return backend


def text_of(gm: torch.fx.GraphModule) -> str:
    """A captured graph as text that reads back."""
    return print_captured(gm.graph, with_data=True)


def rest_of(recipe: Any, options: Options, report: aotautograd.Report) -> Any:
    """aotautograd's Rest of a recipe that was made by inductor_backend."""
    compiler = GraphCompiler(options, Stage(nothing, options.progress))
    make = functools.partial(_made_by(compiler.unguarded, options), report=report)
    text = recipe["captured"]["text"]
    return Rest(recipe, lambda: parse_captured(text), make, aot_options(options, **_facts(compiler, options)), report)


def _facts(compiler: GraphCompiler, options: Options) -> dict[str, Any]:
    """Fields of AotOptions for graphs that our compiler gets."""
    # what moves images chooses other kernels, with other bits, and so do sums in another order
    return {**compiler.facts, **dict.fromkeys(("channels_last", "gradients_first"), options.numerics == "default")}


def _compilation(make: Compile, options: Options) -> Compile:
    """The same, as a compilation of its own: activity sees it, and with suppress_errors a graph whose compilation fails runs as it is."""

    @capture.defer_signal_errors
    @capture.paused_collection()  # the compilation of a backward is not part of a frame's
    def compile_(gm: torch.fx.GraphModule, spec: Any, report: aotautograd.Report) -> Callable[..., Any]:
        try:
            with activity.stage("runtime", spec.role, options.progress):  # a look at the cache; of a backward, all of it
                return make(gm, spec, report)
        except CompileError as error:  # here, and not only around the whole, because a backward is compiled when it first runs
            cases.keep(lambda: cases.Case.of_functional(gm, spec, options), error, options.dump_dir)
            if not options.suppress_errors:
                raise
            report(f"suppress_errors is on, and the {spec.role} failed: {error}", error.location or "")
            return lambda inputs: gm(*inputs)

    return compile_


def aot_options(options: Options, **beside: Any) -> aotautograd.AotOptions:
    """What of the options aotautograd takes, and other fields beside."""
    return aotautograd.AotOptions(
        options.partitioner, memory_budget=options.memory_budget, rewrite=passes.on_joint(options), **beside
    )


def report_of(gm: torch.fx.GraphModule) -> aotautograd.Report:
    """What warns that a graph, or a part of one, runs uncompiled."""

    def report(reason: str, place: str) -> None:
        capture.report_uncompiled(reason, place or gm.meta.get("place", "a graph"))

    return report


def run_uncompiled(gm: torch.fx.GraphModule, error: Exception) -> Callable[..., Any]:
    """What suppress_errors puts in the place of a graph whose compilation failed, with a warning."""
    report_of(gm)(f"suppress_errors is on, and {type(error).__name__}: {error}", getattr(error, "location", None) or "")
    return aotautograd.uncompiled(gm)


def inductor_backend(options: Options, observe: Observe) -> Callable[..., Any]:
    """All stages; a graph whose compilation fails raises CompileError, a forward or backward only without suppress_errors."""
    if options.fallback_by_default:
        return aot_eager_backend(options, observe)
    compiler = GraphCompiler(options, Stage(observe, options.progress))
    check_named_compiler(options)
    return _ahead_of_time(options, observe, compiler, compiler.unguarded, compiler.warm_up, **_facts(compiler, options))


def engine_backend(name: str, options: Options, observe: Observe, given: Mapping[str, Any]) -> Callable[..., Any]:
    """Graphs as ONNX models on an engine. What it refuses is compiled by our own compiler, or run by eager's kernels without one."""
    from .onnx.compiler import EngineCompiler  # with tables that these backends alone read

    stage = Stage(observe, options.progress)
    own = GraphCompiler(options, stage)

    def on_engine(instead: Compile) -> Compile:
        return EngineCompiler(name, given, options.index_checks, instead, stage)

    return _ahead_of_time(options, observe, on_engine(own), on_engine(own.unguarded), **own.facts)


def prims_backend(options: Options, observe: Observe) -> Callable[..., Any]:
    """Ahead-of-time autograd and decompositions, then the eager kernels of prims."""
    stage = Stage(observe)
    compiler = GraphCompiler(options, stage)

    def run(gm: torch.fx.GraphModule, spec: Any, report: aotautograd.Report) -> Callable[..., Any]:
        prims = stage.observed("primops", compiler.prims, gm, spec)
        return lambda inputs: prims.run(*inputs)

    return _ahead_of_time(options, observe, run)


class Answers:
    """What aotautograd keeps of one kind, in the disk cache."""

    def __init__(self, options: runtime.RuntimeOptions, kind: str) -> None:
        self._options, self._kind = options, kind

    def get(self, key: str) -> bytes | None:
        return runtime.open_cache(self._options).store.get(self._kind, key)

    def put(self, key: str, answer: bytes) -> None:
        runtime.open_cache(self._options).store.put(self._kind, key, answer)


class BySettings:
    """A graph of gradients, compiled for the settings of torch that are on when it runs, as eager's looks at them then."""

    def __init__(self, gm: torch.fx.GraphModule, spec: Any, compile_: Compile, report: aotautograd.Report) -> None:
        self._gm, self._spec, self._compile, self._report = gm, spec, compile_, report
        settings = runtime.Settings.now()
        made = compile_(gm, spec, report)
        self._made = {settings: made}
        recipe = getattr(made, RECIPE, None)
        if recipe is not None:
            setattr(self, RECIPE, {**recipe, "settings": list(settings)})

    def __call__(self, inputs: list[Any]) -> Any:
        settings = runtime.Settings.now()
        call = self._made.get(settings)
        if call is None:
            call = self._made[settings] = self._make()
        return call(inputs)

    def _make(self) -> Callable[[list[Any]], Any]:
        symbols = self._spec.symbols
        if symbols is not None and symbols.symbols:  # nobody would check what compiling finds out about sizes
            self._report("settings of torch have changed since gradients with open sizes were compiled", "")
            return lambda inputs: self._gm(*inputs)
        with torch.no_grad():
            return self._compile(self._gm, self._spec, self._report)


class GraphCompiler:
    """Functional ATen graph -> callable: prims, then an artifact from the cache or made new, then loaded."""

    def __init__(self, options: Options, stage: Stage) -> None:
        self._stage = stage
        self._options = options
        self._profile = options.profile
        self.inductor = inductor.InductorOptions(
            max_autotune=options.max_autotune,
            numerics=options.numerics,
            index_checks=options.index_checks,
            numbers_in_memory=RECORDED if options.cudagraphs else frozenset(),
        )
        self._runtime = runtime_options(options)
        self._loops = passes.on_loops(options)
        self._loops_identity = identity(options, ("loops",))
        if self._loops_identity is None:  # what was made of such loops is nobody else's
            self._runtime = dataclasses.replace(self._runtime, disk_cache=False)

    @functools.cached_property
    def _changes(self) -> dict[Any, Any]:
        """Asked for at the first graph: it looks at every decomposition."""
        return primops.contract_changes(self._options.numerics)

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of AotOptions."""
        attention: frozenset[str] = inductor.ATTENTION_DEVICES if self._options.numerics == "default" else frozenset()
        return {
            "answers": Answers(self._runtime, "cut"),
            "backwards": Answers(self._runtime, BACKWARD) if self._options.cache else None,
            "addresses": runtime.addresses,
            "attention": attention,
            "trained_attention": attention & ONE_OPERATOR,
            "row_statistics": frozenset({"cpu", "cuda"}),
        }

    def __call__(self, gm: torch.fx.GraphModule, spec: Any, report: aotautograd.Report) -> Callable[..., Any]:
        """For the settings of torch that are on, which capture guards."""
        return self._compiled(gm, spec)

    def unguarded(self, gm: torch.fx.GraphModule, spec: Any, report: aotautograd.Report) -> Callable[..., Any]:
        """For the settings of torch that will be on."""
        return BySettings(gm, spec, _compilation(self, self._options), report)

    def _compiled(self, gm: torch.fx.GraphModule, spec: Any) -> Callable[..., Any]:
        tell("graph", (gm, spec))
        prims = self._stage.observed("primops", self.prims, gm, spec)
        if logs.is_on("plan"):  # the cache has what was made of a plan, not the plan
            self._stage.observed("plan", self._plan, prims)
        cache = runtime.open_cache(self._runtime)
        try:
            loaded = cache.loaded(lambda: self._stage.observed("inductor", self._artifact, prims, cache), self._loaded)
        except CompileError as error:
            if not isinstance(error.__cause__, runtime.NoCompiler):
                raise
            return self._by_operators(gm, error.__cause__)
        if (instead := instead_of(loaded)) is not loaded:  # it is seen step by step, which no recording is
            return instead
        if self._options.kernel_ranges:
            return runtime.watched(loaded, runtime.Ranges.of(loaded.artifact, f"{spec.role} of {activity.compiling()}"))
        return with_recipe(recorded(loaded, self._options, spec.visible), loaded.artifact, spec.visible)

    def artifact(self, gm: torch.fx.GraphModule, spec: Any) -> runtime.Artifact:
        """The artifact of a functional graph, which is not loaded."""
        prims = self._stage.observed("primops", self.prims, gm, spec)
        return self._stage.observed("inductor", self._artifact, prims, runtime.open_cache(self._runtime))

    def _by_operators(self, gm: torch.fx.GraphModule, missing: runtime.NoCompiler) -> Callable[..., Any]:
        """The graph, run by eager's kernels. Collectors are told of each graph, the user is warned once."""
        reason, place = "there is no C++ compiler", activity.compiling() or "a graph"
        text = (
            f"graphs for the CPU run by eager's kernels: {missing.message}\n  at {place}, and elsewhere\n  try: {missing.advice}"
        )
        capture.report_uncompiled(reason, place, text=text, quiet=reason in _warned)
        _warned.add(reason)
        return _torch.below_views(gm)

    def _plan(self, prims: Any) -> inductor.KernelPlan:
        return inductor.plan_graph(prims, self.inductor.under(runtime.Settings.now()), runtime=self._runtime, change=self._loops)

    def _loaded(self, artifact: runtime.Artifact) -> Any:
        # capture's guards have compared the inputs
        return self._stage.observed("runtime", runtime.load, artifact, self._runtime, check_inputs=False)

    def warm_up(self, example_inputs: list[Any]) -> None:
        """Starts what building for the inputs' device needs while the graph is being traced."""
        if any(isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in example_inputs):
            runtime.warm_up("cuda", self._runtime)

    def prims(self, gm: torch.fx.GraphModule, spec: Any, steps: Sequence[primops.Pass] | None = None) -> Any:
        """The graph in prims, simplified by these passes; by all where none are named."""
        left = primops.deterministic_changes() if torch.are_deterministic_algorithms_enabled() else {}
        changes: dict[Any, Any] = {**left, **self._changes}
        graph = primops.decompose(gm, profile=self._profile, spec=spec, changes=changes)
        tidy = primops.run_passes(graph.replace(editable=True), primops.PRIM_PASSES if steps is None else steps)
        return passes.on_prims(self._options, tidy)

    def _artifact(self, prims: Any, cache: runtime.Cache) -> runtime.Artifact:
        devices = frozenset(str(i.spec.device) for i in prims.inputs if hasattr(i.spec, "device"))
        options = self.inductor.under(runtime.Settings.now())
        changes = () if self._loops is None else (self._loops_identity or uuid.uuid4().hex,)
        facts = runtime.KeyFacts(prims.fingerprint(), options.fingerprint(), self._runtime, devices, changes)
        key = runtime.cache_key(facts)

        def make() -> runtime.Artifact:
            if any(getattr(i.spec, "device", None) == _CPU and len(i.spec.sizes) for i in prims.inputs):
                runtime.find_compiler(self._options.cxx or None)  # before the work of lowering, which would be in vain
            return inductor.compile_graph(prims, options, runtime=self._runtime, change=self._loops)

        return cache.get_or_make(key, make).placed(inductor.places(prims))
