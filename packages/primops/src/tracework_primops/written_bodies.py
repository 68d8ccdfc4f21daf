"""What a program does to the scores of attention that it wrote out, as bodies: of the changed score, of what hides it, and of derivatives.

What replaces scores by -inf is a mask, which is not read but computed where it is made of positions alone, so that a kernel sees its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .attention import Bodies, Trained
from .graph.prim_graph import PrimGraph
from .graph.text import print_graph
from .op import GraphBuilder, Kind, Op, PrimValue, Tag, prims
from .spec import TensorSpec
from .symbols import Size
from .written_attention import Step, WrittenAttention, as_four

PLACED = frozenset({Kind.CREATION, Kind.POINTWISE, Kind.VIEW})
TRIANGLES = frozenset({prims.tril, prims.triu})
MOST_CALLS = 32
"""By which a mask may be computed of positions in a body."""
AXES = "bhij"
Read = tuple[Any, tuple[tuple[Size, ...], ...]]
"""A tensor as a step reads it: its node, and the sizes by which it gets four axes, since several steps may read it by several views."""


def read_by(step: Step, found: WrittenAttention) -> Read:
    """What a step with a tensor reads."""
    return step.tensor, tuple(as_four(step.tensor.meta["spec"].sizes, step.sizes, found.sizes) or ())


class StepBodies:
    """What is done to the scores, as bodies.

    read: for each tensor that the bodies read, and each way to give it four axes, a step that reads it so; whoever calls them gives these
    tensors four axes, but those with gradients only their axes, as attention.py has them.
    """

    def __init__(self, found: WrittenAttention) -> None:
        self.found = found
        self.read: dict[Read, Step] = {}
        for step in found.steps:
            if step.tensor is not None and not _is_of_places(step.tensor):
                self.read.setdefault(read_by(step, found), step)

    def bodies(self, specs: list[TensorSpec], trained: Mapping[Read, str] | None = None) -> Bodies:
        """specs: of the tensors that are read. trained: those with gradients, and their axes."""
        traced = _Traced(self.found, list(self.read), specs, trained or {})
        factors = [Trained(traced.places[of], axes, traced.text(traced.by(of))) for of, axes in traced.trained.items()]
        slope = "" if all(step.kind == "add" for step in self.found.steps) else traced.text(traced.by(None))
        return Bodies(traced.text(traced.changed), traced.text(traced.keep), slope, tuple(factors))


class _Traced:
    def __init__(self, found: WrittenAttention, read: list[Read], specs: list[TensorSpec], trained: Mapping[Read, str]) -> None:
        self.found, self.trained = found, trained
        device = found.query.meta["spec"].device
        sizes = found.sizes
        self.places = {of: place for place, of in enumerate(read)}
        self.specs = [TensorSpec(torch.float32, device, sizes)]
        self.specs += [TensorSpec(torch.int64, device, tuple(n if d == e else 1 for e, n in enumerate(sizes))) for d in range(4)]
        self.specs += [TensorSpec(spec.dtype, device, spec.sizes) for spec in specs]

    def text(self, of: Callable[[list[PrimValue]], PrimValue]) -> str:
        """The body that a function of (score, b, h, i, j, *captured) builds."""
        graph = torch.fx.Graph()
        values = []
        for n, spec in enumerate(self.specs):
            node = graph.placeholder(f"x{n}")
            node.meta["spec"] = spec
            values.append(PrimValue(spec, node))
        with GraphBuilder(graph):
            result = of(values)
        graph.output((result.node,))
        return print_graph(PrimGraph.from_fx(graph), origins=False, canonical=True)

    def _tensor(self, step: Step, values: list[PrimValue]) -> PrimValue:
        """The tensor of a step, with four axes."""
        of = read_by(step, self.found)
        axes = self.trained.get(of)
        if of in self.places:
            given = values[5 + self.places[of]]
            return given if axes is None else self._of_axes(given, axes, values)
        given = _again(step.tensor, {})
        for n, sizes in enumerate(of[1]):
            given = prims.reshape(given, sizes) if n else prims.expand(given, sizes)
        return given

    def _of_axes(self, given: PrimValue, axes: str, values: list[PrimValue]) -> PrimValue:
        """What is read for each score of a tensor with these axes."""
        if "d" not in axes:
            return prims.reshape(given, tuple(n if axis in axes else 1 for axis, n in zip(AXES, self.found.sizes, strict=True)))
        _, *indices = values[:5]
        distance = prims.add(prims.add(indices[2], prims.mul(indices[3], -1)), self.found.sizes[3] - 1)
        return prims.index(given, (*(indices[AXES.index(axis)] for axis in axes[:-1]), distance))

    def changed(self, values: list[PrimValue]) -> PrimValue:
        """All but what hides scores."""
        score = values[0]
        for step in self.found.steps:
            score = self._step(step, score, values)
        return score

    def _step(self, step: Step, score: PrimValue, values: list[PrimValue]) -> PrimValue:
        if step.kind == "scale":
            return prims.mul(score, step.number)
        if step.kind == "tanh":
            return prims.tanh(score)
        if step.kind == "add":
            added = prims.convert(self._tensor(step, values), torch.float32)
            return prims.add(score, prims.mul(added, -1.0) if step.negated else added)
        if step.number == -math.inf:
            return score
        number = torch.tensor(step.number, dtype=step.dtype).item()
        return _chosen(step, self._tensor(step, values), score, number)

    def keep(self, values: list[PrimValue]) -> PrimValue:
        """Where no step makes a score -inf."""
        kept = None
        for step in self.found.steps:
            if step.kind == "fill" and step.number == -math.inf:
                mask = self._tensor(step, values)
                mask = prims.logical_not(mask) if step.negated else mask
                kept = mask if kept is None else prims.logical_and(kept, mask)
        return prims.full((), True, torch.bool, values[0].device) if kept is None else kept

    def by(self, of: Read | None) -> Callable[[list[PrimValue]], PrimValue]:
        """The changed score's derivative by what steps read, or by the score."""

        def derivative(values: list[PrimValue]) -> PrimValue:
            score = values[0]
            found: PrimValue | float = 1.0 if of is None else 0.0
            for step in self.found.steps:
                before, score = score, self._step(step, score, values)
                if step.kind == "scale":
                    found = _times(found, step.number)
                elif step.kind == "tanh" and found != 0.0:
                    square = prims.mul(score, score)
                    found = _times(prims.add(prims.mul(square, -1.0), 1.0), found)
                elif step.kind == "add" and read_by(step, self.found) == of:
                    sign = -1.0 if step.negated else 1.0
                    found = prims.add(found, sign) if isinstance(found, PrimValue) else found + sign
                elif score is not before and step.kind == "fill" and found != 0.0:
                    passed = found if isinstance(found, PrimValue) else prims.full((), found, torch.float32, score.device)
                    found = _chosen(step, self._tensor(step, values), passed, 0.0)
            return found if isinstance(found, PrimValue) else prims.full((), found, torch.float32, score.device)

        return derivative


def _times(found: PrimValue | float, number: Any) -> PrimValue | float:
    if isinstance(found, PrimValue):
        return prims.mul(found, number)
    return prims.mul(number, found) if isinstance(number, PrimValue) else found * number


def _chosen(step: Step, mask: PrimValue, score: PrimValue, number: float) -> PrimValue:
    """A score, or the number that takes its place."""
    return prims.where(mask, *((number, score) if step.negated else (score, number)))


def _is_of_places(node: Any) -> bool:
    """Whether a tensor is computed by few calls of positions and numbers, element by element."""
    seen: set[Any] = set()
    waiting = [node]
    while waiting:
        n = waiting.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.op != "call_function" or not isinstance(n.target, Op) or len(seen) > MOST_CALLS:
            return False
        if n.target.kind not in PLACED and n.target not in TRIANGLES:
            return False
        if not n.target.tags.isdisjoint({Tag.RANDOM, Tag.MUTATES}) or any(user.target is prims.copy_into for user in n.users):
            return False
        waiting += n.all_input_nodes
    return True


def _again(node: Any, made: dict[Any, PrimValue]) -> PrimValue:
    """The same computation where prims go now."""
    if node not in made:
        args = torch.fx.map_arg(node.args, lambda n: _again(n, made))
        made[node] = node.target(*args)
    return made[node]


__all__ = ["AXES", "MOST_CALLS", "Read", "StepBodies", "read_by"]
