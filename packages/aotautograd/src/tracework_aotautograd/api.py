"""aot_compile(): analyse, trace, partition, compile, wrap. Reads top to bottom."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from tracework_primops import copy_node

from . import _torch
from .contracts import Backward, Compiled, FunctionalProgram, GraphCompiler, GraphSpec, JointProgram
from .errors import Refusal, UsageError
from .options import AotOptions
from .partition import PARTITIONERS, JointParts, has_effect, needed_for, split, value_inputs
from .partition.recompute import is_random
from .pieces import depends_on_data, in_pieces
from .signature import Component
from .trace.image_layouts import spread_channels_last
from .trace.joint import trace_inference, trace_joint
from .wrappers.autograd import Gradients, wrap_autograd
from .wrappers.inference import wrap_inference
from .wrappers.other_data import OtherData
from .wrappers.overlap import guard_overlaps
from .wrappers.saved_hooks import guard_saved_hooks

log = logging.getLogger("tracework.aotautograd")
fallbacks = logging.getLogger("tracework.fallbacks")
Observe = Callable[[str, Any], None]


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
) -> Callable[..., tuple[Any, ...]]:
    """Compile a captured graph ahead of time, with its backward when some input and output require grad.

    Args:
        gm: an fx graph of torch calls; placeholder.meta["example_value"] holds fakes where capture made it.
        example_inputs: one real tensor, int or None for each placeholder.
        forward_compiler, backward_compiler, inference_compiler: what compiles the functional ATen graphs; the last two
            default to the first.
        partitioner: a name in PARTITIONERS.

    Returns:
        A callable of the same inputs that returns the tuple of outputs and takes part in autograd. One with the attribute
        `__tracework_writes_last__` has written to an input that raises only where the input has a new version.
    """
    options = options or AotOptions(partitioner=partitioner)
    if options.partitioner not in PARTITIONERS:
        raise UsageError(f"unknown partitioner {options.partitioner!r}; known: {', '.join(PARTITIONERS)}")
    if not 0 <= options.memory_budget <= 1:
        raise UsageError(f"memory_budget is a number from 0 to 1, not {options.memory_budget}")
    try:
        if (node := _torch.dual_level_in(gm.graph)) is not None:
            raise Refusal("forward-mode AD inside of a graph", node.meta.get("stack") or "")
        if (other := _on_other_devices(gm)) is not None:
            raise Refusal(f"a tensor on device {other.meta['example_value'].device}", other.meta.get("stack") or "")
        if depends_on_data(gm):

            def compile_piece(piece: fx.GraphModule, examples: list[Any]) -> Callable[..., tuple[Any, ...]]:
                return aot_compile(
                    piece,
                    examples,
                    forward_compiler=forward_compiler,
                    backward_compiler=backward_compiler,
                    inference_compiler=inference_compiler,
                    options=options,
                    observe=observe,
                )

            return in_pieces(gm, example_inputs, compile_piece)
        program = (trace_joint if _needs_backward(gm, example_inputs) else trace_inference)(gm, example_inputs)
        if program.signature.tangents:
            call = _training(gm, program, forward_compiler, backward_compiler or forward_compiler, options, observe)
            call = guard_saved_hooks(call, gm.forward)
        else:
            call = _inference(program, inference_compiler or forward_compiler, observe)
        call = guard_overlaps(call, gm.forward, program.signature)
        call.__tracework_writes_last__ = True  # type: ignore[attr-defined]
        return call
    except Refusal as refusal:
        if not options.fallback:
            raise
        fallbacks.warning("this graph runs uncompiled: %s", refusal)
        return gm.forward


def _on_other_devices(gm: fx.GraphModule) -> fx.Node | None:
    """The first node whose result is on a device that nothing is compiled for."""
    made = ((n, n.meta.get("example_value")) for n in gm.graph.nodes)
    return next((n for n, x in made if isinstance(x, torch.Tensor) and x.device.type not in DEVICES), None)


DEVICES = ("cpu", "cuda")


def _needs_backward(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return False
    return torch.is_grad_enabled() or any(_torch.turns_grad_on(node) for node in gm.graph.nodes)


def _apart_from_autocast(call: Compiled) -> Compiled:
    """The casts are in the graph already; library calls inside must not cast again."""
    if not _torch.autocast_is_on():
        return call

    def run(inputs: list[Any]) -> Sequence[Any]:
        with _torch.without_autocast():
            return call(inputs)

    return run


# Kernels that give what their backward needs only where gradients are on.
KEEPS_FOR_BACKWARD = frozenset({torch.ops.aten.mkldnn_rnn_layer.default})


def _keeping(gm: fx.GraphModule, call: Compiled) -> Compiled:
    """With gradients on where such a kernel is called, and autograd none the wiser."""
    if not any(n.target in KEEPS_FOR_BACKWARD for n in gm.graph.nodes):
        return call

    def run(inputs: list[Any]) -> Sequence[Any]:
        with torch.enable_grad(), _torch.below_autograd():
            return call(inputs)

    return run


def _inference(program: JointProgram, compiler: GraphCompiler, observe: Observe | None) -> Callable[..., tuple[Any, ...]]:
    signature = program.signature
    spec = GraphSpec("inference", signature.static_inputs, signature.mutated_in_graph, program.symbols, program.fake_mode)
    _clean(program.graph)
    spread_channels_last(program.graph)
    if observe is not None:
        observe("functional", program.graph)
    return wrap_inference(_apart_from_autocast(compiler(program.graph, spec)), signature)


def partition(joint: JointProgram, options: AotOptions) -> FunctionalProgram:
    """The joint graph cut into forward and backward."""
    parts = JointParts.of(joint)
    saved = PARTITIONERS[options.partitioner](joint, parts, options)
    halves = split(joint, parts, saved)
    signature = joint.signature
    forward_spec = GraphSpec("forward", signature.static_inputs, signature.mutated_in_graph, joint.symbols, joint.fake_mode)
    counts = len(halves.saved_sizes), len(halves.saved_tensors)
    backwards = []
    for component, (graph, saved_places) in zip(signature.components, halves.backwards, strict=True):
        static = _static_saved(parts, [halves.saved_tensors[place] for place in saved_places], signature.static_inputs, counts[0])
        spec = GraphSpec("backward", static, frozenset(), joint.symbols, joint.fake_mode)
        backwards.append(Backward(graph, spec, component, saved_places))
    return FunctionalProgram(halves.forward, tuple(backwards), signature, counts, forward_spec)


def _static_saved(parts: JointParts, saved: Any, static: frozenset[int], offset: int) -> frozenset[int]:
    """Places among the backward's inputs of saved values that are static inputs of the forward."""
    fixed = {n for i, n in enumerate(parts.inputs) if i in static}
    return frozenset(offset + i for i, n in enumerate(saved) if n in fixed)


def _training(
    gm: fx.GraphModule,
    joint: JointProgram,
    forward_compiler: GraphCompiler,
    backward_compiler: GraphCompiler,
    options: AotOptions,
    observe: Observe | None,
) -> Callable[..., tuple[Any, ...]]:
    _clean(joint.graph)
    spread_channels_last(joint.graph)
    program = partition(joint, options)
    log.debug("%s", program)
    if observe is not None:
        observe("functional", program)
    forward = _apart_from_autocast(forward_compiler(program.forward, program.forward_spec))
    forward = _keeping(program.forward, forward)
    parts = JointParts.of(joint)
    drawn = [n for n in joint.graph.graph.nodes if is_random(n)]
    gradients = []
    for backward in program.backwards:
        first = LazyBackward(backward, backward_compiler)
        if options.eager_backward or program.saved[0]:
            first.compile()  # with symbolic sizes: what compiling finds out about them has to be known when guards are made
        is_compiled = not gm.meta.get("hooks_behind")
        again = SecondOrder(joint, backward.component, forward_compiler, options, is_compiled)
        read = _read_by_gradients(parts, backward.component, drawn)
        gradients.append(
            Gradients(backward, first, again, *read, _taken(parts, backward.component, drawn), OtherData(joint, backward))
        )
    return wrap_autograd(program, forward, gradients)


def _read_by_gradients(
    parts: JointParts, component: Component, drawn: Sequence[fx.Node]
) -> tuple[frozenset[int], frozenset[int]]:
    """Input slots that computing the gradients of a component takes, and those of them whose values the gradients depend on.

    drawn: random numbers, which are drawn again in their turn, those of other components too.
    """
    gradients = parts.gradients[component]
    cuts = {parts.forward_outputs[slot] for slot in component.results}
    taken, needed = needed_for([*gradients, *drawn], cuts), needed_for(gradients, cuts, value_inputs)
    first, second = (frozenset(i for i, n in enumerate(parts.inputs) if n in found) for found in (taken, needed))
    return first, second


def _taken(parts: JointParts, component: Component, drawn: Sequence[fx.Node]) -> tuple[int, ...]:
    """Which of the results that a component takes computing its gradients takes."""
    nodes = [parts.forward_outputs[slot] for slot in component.results]
    read = needed_for([*parts.gradients[component], *drawn], set(nodes))
    return tuple(place for place, node in enumerate(nodes) if node in read)


class LazyBackward:
    """A backward, compiled when it is first called."""

    def __init__(self, backward: Backward, compiler: GraphCompiler) -> None:
        self._backward: Backward | None = backward
        self._compiler = compiler
        self._call: Compiled | None = None

    def compile(self) -> Compiled:
        """The compiled backward."""
        if self._call is None:
            backward = self._backward
            assert backward is not None
            with torch.no_grad(), _torch.without_autocast():
                self._call = _keeping(backward.graph, self._compiler(backward.graph, backward.spec))
            self._backward = None
        return self._call

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        call = self._call or self.compile()
        if not _torch.autocast_is_on():
            return call(inputs)
        with _torch.without_autocast():
            return call(inputs)


class SecondOrder:
    """A component's gradients as differentiable functions of inputs and tangents: the joint graph, compiled as a program of its own.

    Compiled at the first call under `create_graph=True` for each combination of inputs that require grad; its own backward is the next
    order. Guards exist by then, so with symbolic sizes what compiling finds out is checked here, and otherwise the graph runs as it is.
    So it does where hooks are behind its inputs: the engine has to know which of them a gradient comes to.
    """

    def __init__(
        self, joint: JointProgram, component: Component, compiler: GraphCompiler, options: AotOptions, is_compiled: bool
    ) -> None:
        self._joint = joint
        self._component = component
        self._compiler = compiler
        self._options = options
        self._graph: fx.GraphModule | None = None
        self._read: tuple[int, ...] = ()  # inputs and tangents that the gradients depend on
        self._compiled: dict[tuple[bool, ...], tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {}
        self._is_compiled = is_compiled
        self._guarded: int | None = None  # conditions that were there when guards were made

    def __call__(self, inputs: list[Any], tangents: list[Any]) -> Sequence[Any]:
        given = [*inputs, *tangents]
        if self._graph is None:
            self._graph, self._read = self._gradients()
        args = [given[i] for i in self._read]
        if not self._is_compiled:
            return self._graph.forward(*args)  # type: ignore[no-any-return]
        key = tuple([getattr(x, "requires_grad", False) for x in args])
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self._compile(args)
        call, plain, conditions = found
        return call(*args) if not conditions or self._hold(conditions, given) else plain(*args)

    def _compile(self, args: list[Any]) -> tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]:
        gradients, symbols = self._graph, self._joint.symbols
        assert gradients is not None
        if self._guarded is None:
            self._guarded = 0 if symbols is None else len(symbols.conditions)
        call = aot_compile(
            gradients, args, forward_compiler=self._compiler, options=replace(self._options, eager_backward=symbols is not None)
        )
        return call, gradients.forward, () if symbols is None else tuple(c.condition for c in symbols.conditions[self._guarded :])

    def _hold(self, conditions: tuple[Any, ...], given: list[Any]) -> bool:
        values = {n.meta["val"].node.expr: x for n, x in zip(self._placeholders(), given, strict=True) if _is_size(n.meta["val"])}
        return all(condition.evaluate(values) for condition in conditions)

    def _placeholders(self) -> list[fx.Node]:
        """The joint graph's inputs, the results that the component takes, the component's tangents."""
        parts = JointParts.of(self._joint)
        results = [parts.forward_outputs[slot] for slot in self._component.results]
        return [*parts.inputs, *results, *(parts.tangents[place] for place in self._component.tangents)]

    def _gradients(self) -> tuple[fx.GraphModule, tuple[int, ...]]:
        """The joint graph returning the component's gradients alone, and the places of what it reads."""
        source = self._joint.graph.graph
        graph = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        tangents = JointParts.of(self._joint).tangents
        for node in dict.fromkeys((*self._placeholders(), *tangents)):
            made[node] = graph.placeholder(node.name)
            made[node].meta.update(node.meta if node.op == "placeholder" else {}, example_value=node.meta["val"])
            made[node].meta.pop("val", None)
        for node in source.nodes:
            if node.op == "output":
                graph.output(tuple(made[o] for o in JointParts.of(self._joint).gradients[self._component]))
            elif node.meta.get("write_back") is None and node not in made:
                made[node] = copy_node(graph, node, made.__getitem__)
                made[node].meta.pop("val", None)
        gm = _torch.graph_module(graph)
        _clean(gm)  # random numbers stay: each has to be drawn in its turn
        gm.meta["symbols"] = self._joint.symbols
        given = [made[n] for n in self._placeholders()]
        read = tuple(i for i, n in enumerate(given) if n.users or _is_size(n.meta["example_value"]))
        for node in list(graph.nodes):
            if node.op == "placeholder" and not node.users and not _is_size(node.meta["example_value"]):
                graph.erase_node(node)
        return gm, read


def _is_size(value: Any) -> bool:
    return isinstance(value, torch.SymInt)


def _clean(gm: fx.GraphModule) -> None:
    """Nodes nobody reads go; writes and random numbers stay."""
    for node in reversed(list(gm.graph.nodes)):
        if node.op == "call_function" and not node.users and not has_effect(node):
            gm.graph.erase_node(node)
