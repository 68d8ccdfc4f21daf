"""aot_compile(): analyse, trace, partition, compile, wrap. Reads top to bottom."""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx
from tracework_primops import PrimError, checks_indices

from . import _torch
from .contracts import Backward, Compiled, FunctionalProgram, GraphCompiler, GraphSpec, JointProgram, Report
from .errors import BehindAHook, Refusal, UsageError
from .higher_order import BATCHED, HigherOrder, reads_of
from .layouts import lay_out
from .options import AotOptions
from .partition import (
    PARTITIONERS,
    JointParts,
    add_before_products,
    has_effect,
    in_stages,
    keep_statistics,
    merge_equal,
    narrow_indices,
    shown_input,
    split,
)
from .partition.trade_off import kept_within
from .pieces import depends_on_data, in_pieces, name_of
from .recipes import (
    RECIPE,
    REFUSED,
    Captured,
    NotData,
    Recipe,
    Run,
    guarded,
    inference_recipe,
    of_stage,
    pieces_recipe,
    training_recipe,
    wrapped_forward,
)
from .signature import Signature, TrainingFacts
from .trace.attention import ALL_SCORES
from .trace.joint import trace_inference, trace_joint
from .trace.rewritten import rewrite
from .wrappers.autograd import Gradients, wrap_autograd
from .wrappers.facts import training_facts
from .wrappers.inference import records_history, wrap_inference
from .wrappers.keeping import keeping, keeps_for_backward
from .wrappers.other_data import OtherData
from .wrappers.stages import stage_by_stage
from .wrappers.uncompiled import uncompiled

fallbacks = logging.getLogger("tracework.fallbacks")
Observe = Callable[[str, Any], None]


def log_uncompiled(reason: str, place: str) -> None:
    """A Report that writes to the log."""
    fallbacks.warning("this graph runs uncompiled: %s%s", reason, f" (at {place})" if place else "")


def _once(report: Report) -> Report:
    told: set[tuple[str, str]] = set()

    def tell(reason: str, place: str) -> None:
        if (reason, place) not in told:
            told.add((reason, place))
            report(reason, place)

    return tell


def aot_compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    forward_compiler: GraphCompiler,
    backward_compiler: GraphCompiler | None = None,
    inference_compiler: GraphCompiler | None = None,
    partitioner: str = "min_cut",
    options: AotOptions | None = None,
    observe: Observe | None = None,
    report: Report = log_uncompiled,
) -> Callable[..., tuple[Any, ...]]:
    """Compile a captured graph ahead of time, with its backward when some input and output require grad.

    Args:
        gm: an fx graph of torch calls; placeholder.meta["example_value"] holds fakes where capture made it.
        example_inputs: one real tensor, int or None for each placeholder.
        forward_compiler, backward_compiler, inference_compiler: what compiles the functional ATen graphs; the last two
            default to the first. The second is also given what computes gradients under `create_graph=True`.
        partitioner: a name in PARTITIONERS.
        observe: called with ("functional", product) for each piece of the graph: the functional graph, or the FunctionalProgram; and with
            ("between", texts) of what runs as it is between pieces, ("attention", texts) of why attention computes all scores.
        report: told once for a graph why and where it, a part of it, or a call runs uncompiled.

    Returns:
        A callable of the same inputs that returns the tuple of outputs and takes part in autograd. One with the attribute
        `__tracework_writes_last__` has written to an input that raises only where the input has a new version.
    """
    options = options or AotOptions(partitioner=partitioner)
    if isinstance(options.partitioner, str) and options.partitioner not in PARTITIONERS:
        raise UsageError(f"unknown partitioner {options.partitioner!r}; known: {', '.join(PARTITIONERS)}")
    if not 0 <= options.memory_budget <= 1:
        raise UsageError(f"memory_budget is a number from 0 to 1, not {options.memory_budget}")
    report = _once(report)
    try:
        if (node := _torch.dual_level_in(gm.graph)) is not None:
            raise Refusal("forward-mode AD inside of a graph", node.meta.get("stack") or "")
        if (other := _on_other_devices(gm)) is not None:
            raise Refusal(f"a tensor on device {other.meta['example_value'].device}", other.meta.get("stack") or "")

        pieces: dict[str, Any] = {}

        def compile_piece(piece: fx.GraphModule, examples: list[Any]) -> Callable[..., tuple[Any, ...]]:
            pieces[name_of(piece)] = None
            pieces[name_of(piece)] = call = aot_compile(
                piece,
                examples,
                forward_compiler=forward_compiler,
                backward_compiler=backward_compiler,
                inference_compiler=inference_compiler,
                options=options,
                observe=observe,
                report=report,
            )
            return call

        captured = Captured.now(gm, example_inputs)
        if depends_on_data(gm):
            call = in_pieces(gm, example_inputs, compile_piece, report, observe)
            return _with_recipe(call, partial(pieces_recipe, captured, pieces), gm, options)
        try:
            if _needs_backward(gm, example_inputs):
                program = trace_joint(gm, example_inputs, options.attention, options.trained_attention)
            else:
                program = trace_inference(gm, example_inputs, options.attention)
        except BehindAHook:
            call = in_pieces(gm, example_inputs, compile_piece, report, observe)
            setattr(call, REFUSED, "a hook runs between its pieces")
            return call
        if (reasons := gm.meta.pop(ALL_SCORES, None)) and observe is not None:
            observe("attention", tuple(dict.fromkeys(reasons)))
        if options.rewrite is not None:
            change = partial(options.rewrite, is_inference=not program.signature.tangents)
            rewrite(program.graph, change, program.fake_mode)
        if program.signature.tangents:
            call, recipe = _training(
                program, forward_compiler, backward_compiler or forward_compiler, options, observe, report, captured
            )
        else:
            call, recipe = _inference(program, inference_compiler or forward_compiler, options, observe, captured)
        symbols = gm.meta.get("symbols")
        is_static = symbols is None or not symbols.symbols  # others would be found out about after guards were made
        anew = partial(compile_piece, gm) if is_static else None
        call = guarded(call, uncompiled(gm), program.signature, report, options.addresses, anew)
        return _with_recipe(call, lambda: recipe, gm, options)
    except Refusal as refusal:
        if not options.fallback or gm.meta.get("tries_symbols"):  # which capture makes again, with numbers
            raise
        report(refusal.reason, refusal.origin)
        return uncompiled(gm)


def _with_recipe(call: Run, made: Callable[[], Recipe | NotData], gm: fx.GraphModule, options: AotOptions) -> Run:
    """The callable, with its recipe, or why there is none."""
    try:
        recipe = made()
        if not isinstance(recipe, NotData) and recipe["captured"] is not None and options.text is not None:
            recipe["captured"].update(text=options.text(gm), place=str(gm.meta.get("place", "a graph")))
    except NotData as why:
        recipe = why
    except PrimError as why:
        recipe = NotData(f"its graph has no text: {why}")
    if isinstance(recipe, NotData):
        setattr(call, REFUSED, str(recipe))
    else:
        setattr(call, RECIPE, recipe)
    return call


def _on_other_devices(gm: fx.GraphModule) -> fx.Node | None:
    """The first node whose result is on a device that nothing is compiled for."""
    made = ((n, n.meta.get("example_value")) for n in gm.graph.nodes)
    return next((n for n, x in made if isinstance(x, torch.Tensor) and x.device.type not in DEVICES), None)


DEVICES = ("cpu", "cuda")


def _needs_backward(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return False
    return torch.is_grad_enabled() or any(_torch.turns_grad_on(node) for node in gm.graph.nodes)


def _inference(
    program: JointProgram, compiler: GraphCompiler, options: AotOptions, observe: Observe | None, captured: Captured
) -> tuple[Run, Recipe | NotData]:
    compiled = compiler(program.graph, _ready_for_inference(program, options, observe))
    signature = program.signature
    records, autocast = records_history(signature), _torch.autocast_is_on()
    made = wrap_inference(_torch.apart_from_autocast(compiled) if autocast else compiled, signature, records)
    try:
        return made, inference_recipe(signature, getattr(compiled, RECIPE, None), records, autocast, captured)
    except NotData as why:
        return made, NotData(*why.args)  # without the frames of this one, which hold the inputs


def _ready_for_inference(program: JointProgram, options: AotOptions, observe: Observe | None) -> GraphSpec:
    """Tidies the graph of a program without a backward, and gives what its compiler is told."""
    signature = program.signature
    _clean(program.graph)
    if options.channels_last:
        lay_out(program.graph, options.answers)
    if observe is not None:
        observe("functional", program.graph)
    return GraphSpec("inference", signature.static_inputs, signature.mutated_in_graph, program.symbols, program.fake_mode)


def inference_program(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: AotOptions | None = None, observe: Observe | None = None
) -> tuple[fx.GraphModule, GraphSpec, Signature]:
    """The functional graph of a captured graph without a backward, what its compiler is told, and the calling convention around it: for
    callers that wrap what is compiled themselves.

    Raises Refusal where aot_compile would not make one graph of it.
    """
    options = options or AotOptions()
    if (other := _on_other_devices(gm)) is not None:
        raise Refusal(f"a tensor on device {other.meta['example_value'].device}", other.meta.get("stack") or "")
    if depends_on_data(gm):
        found = next((node for node in gm.graph.nodes if node.meta.get("data_dependent")), None)
        if found is not None and found.target is operator.getitem:  # one of several results
            found = found.all_input_nodes[0]
        what = "a hook of a result" if found is None else getattr(found.target, "__name__", found.target)
        raise Refusal(f"{what}, which runs as it is", "" if found is None else found.meta.get("stack") or "")
    program = trace_inference(gm, example_inputs, options.attention)
    if program.signature.shared:
        raise Refusal("inputs that share memory, of which one is written to")
    if options.rewrite is not None:
        rewrite(program.graph, partial(options.rewrite, is_inference=True), program.fake_mode)
    spec = _ready_for_inference(program, options, observe)
    return program.graph, spec, program.signature


def partition(joint: JointProgram, options: AotOptions) -> FunctionalProgram:
    """The joint graph cut into forward and backward."""
    parts = JointParts.of(joint)
    choose = PARTITIONERS[options.partitioner] if isinstance(options.partitioner, str) else options.partitioner
    saved = choose(joint, parts, options)
    halves = split(joint, parts, saved)
    signature = joint.signature
    seen = signature.number_of_graph_outputs
    forward_spec = GraphSpec("forward", signature.static_inputs, signature.mutated_in_graph, joint.symbols, joint.fake_mode, seen)
    counts = len(halves.saved_sizes), len(halves.saved_tensors)
    backwards = []
    for component, (graph, saved_places) in zip(signature.components, halves.backwards, strict=True):
        static = _static_saved(parts, [halves.saved_tensors[place] for place in saved_places], signature.static_inputs, counts[0])
        spec = GraphSpec("backward", static, frozenset(), joint.symbols, joint.fake_mode)
        backward = Backward(graph, spec, component, saved_places)
        if options.buckets is not None and not signature.hooked:  # hooks are called in eager's order
            backward = replace(
                backward, stages=in_stages(backward, signature.inputs, _shown_slots(halves.forward), options.buckets)
            )
        backwards.append(backward)
    kept = kept_within(joint, parts, options, saved)
    return FunctionalProgram(halves.forward, tuple(backwards), signature, counts, forward_spec, joint.graph, kept)


def _shown_slots(forward: fx.GraphModule) -> dict[str, int]:
    """By the names of values of the forward, which the backward has for what is saved: the slot of the input that it is, or is a view of."""
    slots = {node: slot for slot, node in enumerate(n for n in forward.graph.nodes if n.op == "placeholder")}
    shown = ((node.name, shown_input(node)) for node in forward.graph.nodes if node.op != "output")
    return {name: slots[node] for name, node in shown if node is not None}


def _static_saved(parts: JointParts, saved: Any, static: frozenset[int], offset: int) -> frozenset[int]:
    """Places among the backward's inputs of saved values that are static inputs of the forward."""
    fixed = {n for i, n in enumerate(parts.inputs) if i in static}
    return frozenset(offset + i for i, n in enumerate(saved) if n in fixed)


@dataclass(frozen=True)
class Trained:
    """A joint graph cut into forward and backwards, and what the wrapper is told of them."""

    joint: JointProgram
    parts: JointParts
    program: FunctionalProgram
    others: tuple[OtherData, ...]
    facts: TrainingFacts


def trained(joint: JointProgram, options: AotOptions, report: Report) -> Trained:
    """Tidies a joint graph and cuts it."""
    _clean(joint.graph)
    merge_equal(joint.graph.graph)
    if options.gradients_first:
        add_before_products(joint.graph.graph, JointParts.of(joint).needs_tangent)
        _clean(joint.graph)
    if options.channels_last:
        lay_out(joint.graph, options.answers)
    narrow_indices(joint.graph.graph)
    keep_statistics(joint.graph.graph, options.row_statistics)
    program = partition(joint, options)
    parts = JointParts.of(joint)
    others = tuple(OtherData(joint, parts, backward, report) for backward in program.backwards)
    reads = [reads_of(joint, parts, backward.component) for backward in program.backwards]
    return Trained(joint, parts, program, others, training_facts(program, reads, others))


def gradients_of(
    made: Trained,
    compiler: GraphCompiler,
    options: AotOptions,
    report: Report,
    keys: Sequence[str] = (),
    higher: GraphCompiler | None = None,
) -> list[Gradients]:
    """How the gradients of each component are computed. keys: under which the recipes of backwards are kept when they are made. higher: what
    compiles gradients of gradients, if it is another one."""
    joint, program = made.joint, made.program

    def compile_gradients(graph: fx.GraphModule, args: list[Any]) -> Callable[..., tuple[Any, ...]]:
        again = replace(options, eager_backward=joint.symbols is not None)
        return aot_compile(graph, args, forward_compiler=higher or compiler, options=again, report=report)

    gradients = []
    for number, (backward, other) in enumerate(zip(program.backwards, made.others, strict=True)):
        keep = partial(_keep_recipe, options, keys[number]) if keys else None
        first = LazyBackward(backward.graph, backward.spec, len(backward.component.tangents), compiler, report, keep)
        kept = [partial(_keep_recipe, options, of_stage(keys[number], n)) if keys else None for n in range(len(backward.stages))]
        stages = [LazyBackward(s.graph, s.spec, 0, compiler, report, keep) for s, keep in zip(backward.stages, kept, strict=True)]
        if options.eager_backward or program.saved[0]:
            for part in stages or [first]:
                part.compile()  # with symbolic sizes: what compiling finds out about them has to be known when guards are made
        run = stage_by_stage(made.facts.backwards[number].stages, stages, first) if stages else first
        again = HigherOrder(joint, made.parts, backward.component, compile_gradients, report)
        gradients.append(Gradients(run, again, other.gradients))
    return gradients


def _keep_recipe(options: AotOptions, key: str, compiled: Any) -> None:
    recipe = getattr(compiled, RECIPE, None)
    if recipe is not None and options.backwards is not None:
        options.backwards.put(key, json.dumps(recipe).encode())


def _training(
    joint: JointProgram,
    forward_compiler: GraphCompiler,
    backward_compiler: GraphCompiler,
    options: AotOptions,
    observe: Observe | None,
    report: Report,
    captured: Captured,
) -> tuple[Run, Recipe | NotData]:
    made = trained(joint, options, report)
    program = made.program
    if observe is not None:
        observe("functional", program)
    compiled = forward_compiler(program.forward, program.forward_spec)
    recipe: Recipe | NotData
    try:
        recipe = training_recipe(made.facts, program, getattr(compiled, RECIPE, None), captured, options.buckets)
        keys = recipe["backwards"]
    except NotData as why:
        recipe, keys = NotData(*why.args), ()
    forward = wrapped_forward(compiled, _torch.autocast_is_on(), keeps_for_backward(program.forward))
    gradients = gradients_of(made, backward_compiler, options, report, keys)
    return wrap_autograd(made.facts, forward, gradients), recipe


class LazyBackward:
    """A backward, or a stage of one, compiled when it is first called. Several gradients at once are for eager kernels.

    tangents: how many there are, at the end of its inputs. keep: gets what was compiled.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        spec: GraphSpec,
        tangents: int,
        compiler: GraphCompiler,
        report: Report,
        keep: Callable[[Compiled], None] | None = None,
    ) -> None:
        self._graph, self._spec, self._tangents = graph, spec, tangents
        self._keep = keep
        self._compiler = compiler
        self._report = report
        self._call: Compiled | None = None

    def compile(self) -> Compiled:
        """The compiled backward."""
        if self._call is None:
            with torch.no_grad(), _torch.without_autocast():
                made = self._compiler(self._graph, self._spec)
            if self._keep is not None:
                self._keep(made)
            self._call = keeping(made) if keeps_for_backward(self._graph) else made
        return self._call

    def takes_several(self, inputs: Sequence[Any]) -> bool:
        """Whether several gradients are computed at once."""
        return _torch.any_batched(inputs[len(inputs) - self._tangents :])

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self.takes_several(inputs):
            self._report(BATCHED, "")
            with _torch.without_autocast():
                return self._graph(*inputs)
        found: Sequence[Any] = _torch.call_apart_from_autocast(self._call or self.compile(), inputs)
        return found


def _clean(gm: fx.GraphModule) -> None:
    """Nodes nobody reads go; writes, random numbers and checks of data stay."""
    for node in reversed(list(gm.graph.nodes)):
        if node.op == "call_function" and not node.users and not has_effect(node) and not checks_indices(node):
            gm.graph.erase_node(node)
