"""What the wrapper around a trained graph is told: read off the graphs that a joint graph was cut into, as data (signature.TrainingFacts)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import fx

from ..contracts import Backward, FunctionalProgram
from ..partition import shown_input, through_views
from ..signature import BackwardFacts, Reads, TangentInfo, TrainingFacts
from ..trace.components import sources_of, together
from .autograd import readers
from .other_data import OtherData
from .random_state import random_devices


def training_facts(program: FunctionalProgram, reads: Sequence[Reads], others: Sequence[OtherData]) -> TrainingFacts:
    """Of a program, with what the gradients of each component read, and what they are computed of where inputs have other data."""
    backwards = [
        _backward_facts(program, backward, read, other)
        for backward, read, other in zip(program.backwards, reads, others, strict=True)
    ]
    devices = random_devices(program.forward.graph)
    return TrainingFacts(program.signature, program.saved, _not_differentiable(program), devices, tuple(backwards))


def _backward_facts(program: FunctionalProgram, backward: Backward, reads: Reads, other: OtherData) -> BackwardFacts:
    tangents = [program.signature.tangents[place] for place in backward.component.tangents]
    sources = _sources(backward)
    *nodes, output = backward.graph.graph.nodes
    shared = _sharing(nodes, output.args[0], sources, len(tangents))
    apart = any(mask != (1 << len(tangents)) - 1 for mask in shared)
    results, inputs = _kept_by_eager_alone(program, backward, tangents)
    return BackwardFacts(
        backward.component,
        reads,
        backward.saved,
        _ways(program, backward, tangents, other.read_again),
        _kept_result(program, backward, tangents),
        other.watched,
        tuple(sources[result] if isinstance(result, fx.Node) else 0 for result in output.args[0]),
        shared,
        _readers_of_saved(program, backward, sources) if apart else (),
        tuple(results.items()),
        tuple(inputs.items()),
        tuple(stage.facts for stage in backward.stages),
    )


def _outputs(graph: fx.GraphModule) -> Sequence[fx.Node]:
    outputs: Sequence[fx.Node] = next(iter(reversed(graph.graph.nodes))).args[0]  # type: ignore[assignment]  # of a functional graph
    return outputs


def _not_differentiable(program: FunctionalProgram) -> tuple[int, ...]:
    differentiable = {t.slot for t in program.signature.tangents}
    outputs = _outputs(program.forward)[: program.signature.number_of_graph_outputs]
    tensors = [i for i, o in enumerate(outputs) if isinstance(getattr(o, "meta", {}).get("val"), torch.Tensor)]
    return tuple(i for i in tensors if i not in differentiable)


def _sources(backward: Backward) -> dict[fx.Node, int]:
    """For each node of the backward the tangents that it is computed from, as the bits of a number."""
    nodes = list(backward.graph.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    return sources_of(nodes, placeholders[len(placeholders) - len(backward.component.tangents) :])


def _sharing(nodes: Sequence[fx.Node], results: Collection[fx.Node], sources: dict[fx.Node, int], count: int) -> tuple[int, ...]:
    """For each tangent those that share history with it."""
    shared = [0] * count
    masks = together(nodes, results, sources)
    for place in range(count):
        for mask in masks:
            shared[place] |= mask if mask >> place & 1 else 0
    return tuple(shared)


def _readers_of_saved(program: FunctionalProgram, backward: Backward, sources: dict[fx.Node, int]) -> tuple[int, ...]:
    """For each saved tensor the tangents whose gradients read it."""
    nodes = [n for n in backward.graph.graph.nodes if n.op != "output"]
    found = dict.fromkeys(nodes, 0)
    for node in reversed(nodes):
        for given in node.all_input_nodes:
            if not sources[given]:
                found[given] |= sources[node] or found[node]
    sizes = program.saved[0]
    return tuple([found[n] for n in nodes if n.op == "placeholder"][sizes : sizes + len(backward.saved)])


def _saved(program: FunctionalProgram, backward: Backward) -> list[fx.Node]:
    """What the forward gives for this backward."""
    outputs, begin = _outputs(program.forward), program.signature.number_of_graph_outputs + program.saved[0]
    return [outputs[begin + place] for place in backward.saved]


def _kept_by_eager_alone(
    program: FunctionalProgram, backward: Backward, tangents: Sequence[TangentInfo]
) -> tuple[dict[int, int], dict[int, int]]:
    """Slots of graph outputs, and of inputs, that eager keeps for the backward and the partition does not -> the tangents whose
    backward reads them, as the bits of a number."""
    inputs = [node for node in program.forward.graph.nodes if node.op == "placeholder"]
    outputs, saved = _outputs(program.forward), {*_saved(program, backward)}
    shown, infos = {shown_input(node) for node in saved}, program.signature.inputs
    seen = {slot for slot, info in enumerate(infos) if inputs[slot] in shown and info.versions is None}
    return (
        readers(tangents, lambda info: [slot for slot in info.kept.results if outputs[slot] not in saved]),
        readers(tangents, lambda info: [slot for slot in info.kept.inputs if slot not in seen]),
    )


def _ways(
    program: FunctionalProgram, backward: Backward, tangents: Sequence[TangentInfo], read_again: frozenset[int]
) -> tuple[str, ...]:
    """What is asked of each saved tensor before it is kept."""
    # an input would be read back with what `.data = other` gave it meanwhile, of other sizes or another dtype;
    # what is another component's result has a history there, and a view of a result is none that autograd knows
    outputs, saved = _outputs(program.forward), _saved(program, backward)
    mine = {outputs[info.slot] for info in tangents}
    results = {outputs[info.slot] for info in program.signature.tangents}
    apart = {
        node for node in saved if node not in mine and any(n.op == "placeholder" or n in results for n in through_views(node))
    }
    # what a checkpoint reads beside its arguments it reads as it is by then, so that autograd is to ask for no version
    inputs = [n for n in program.forward.graph.nodes if n.op == "placeholder"]
    kept = {slot for info in tangents for slot in info.kept.inputs}
    free = {inputs[slot] for slot in read_again - kept}
    return tuple(".data" if shown_input(node) in free else ".detach()" if node in apart else "" for node in saved)


def _kept_result(program: FunctionalProgram, backward: Backward, tangents: Sequence[TangentInfo]) -> int | None:
    """Which saved tensor is the only result: read back, it has its history, also when nobody else has it any more."""
    if len(tangents) != 1:
        return None
    result = _outputs(program.forward)[tangents[0].slot]
    return next((place for place, node in enumerate(_saved(program, backward)) if node is result), None)
