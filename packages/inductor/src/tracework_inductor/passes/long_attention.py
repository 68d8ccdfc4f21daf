"""Attention of many queries that a program wrote out is a kernel that holds no scores, in inference on a GPU.

What is done to the scores is a body; what replaces them by -inf is a mask, which is not read but computed where it is made of positions alone,
so that bounds see it (codegen/triton/cores/reach.py). Only where the scores take more memory than caches hold: there moving them takes longer
than all of the kernel, whose products are the same.
"""

import math
from typing import Any

import torch
from tracework_primops import Kind, Op, PrimGraph, PrimValue, Tag, TensorSpec, prims
from tracework_primops.graph.text import print_graph
from tracework_primops.op import GraphBuilder

from .fuse_attention import MOST_QUERIES
from .rewrites import built_before, rewritten
from .written_attention import WrittenAttention, as_four, in_four_axes, operands_of, put_in_place, tensor_of, written_attention

LEAST_BYTES = 1 << 26
"""Of the scores, from which on they are moved through memory."""
MOST_WIDTH = 128
DTYPES = frozenset({torch.bfloat16, torch.float16})
PLACED = frozenset({Kind.CREATION, Kind.POINTWISE, Kind.VIEW})
MOST_CALLS = 32
"""By which a mask may be computed of positions in a body."""


def long_attention(graph: PrimGraph) -> PrimGraph:
    """The graph with attention of many queries as a prim; the same object where there is none."""
    return rewritten(graph, _pays, _rewrite)


def _pays(node: Any) -> bool:
    if node.target is not prims.bmm or node.meta["spec"].device.type != "cuda" or (found := written_attention(node)) is None:
        return False
    q, k, v = (n.meta["spec"] for n in (found.query, found.key, found.value))
    numbers = (*found.sizes, q.sizes[2], v.sizes[2])
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype or not all(isinstance(n, int) and n > 0 for n in numbers):
        return False
    enough = math.prod(map(int, found.sizes)) * q.dtype.itemsize >= LEAST_BYTES
    return bool(found.sizes[2] > MOST_QUERIES and max(numbers[4:]) <= MOST_WIDTH and enough)


def _rewrite(node: Any) -> None:
    found = written_attention(node)
    assert found is not None
    with built_before(node):
        bodies = _Bodies(found)
        q, k, v, scale = operands_of(found, node.meta["spec"].sizes[2])
        texts = bodies.text(bodies.changed), bodies.text(bodies.keep)
        new = prims.attention(q, k, v, tuple(bodies.captured), (), (), *texts, scale, (), found.zeroed)[0].node
        whole = new.args[0]
        spec, alike = in_four_axes(node, found)
        new.meta["spec"], whole.meta["spec"] = spec, (spec, *whole.meta["spec"][1:])
        put_in_place(node, new, alike, found)


class _Bodies:
    """What is done to the scores, as bodies; in a block of `built_before`, where captured tensors get four axes."""

    def __init__(self, found: WrittenAttention) -> None:
        self.found = found
        self.captured: list[PrimValue] = []
        self._places: dict[Any, int] = {}
        for step in found.steps:
            if step.tensor is not None and not _is_of_places(step.tensor):
                self._places.setdefault(step.tensor, len(self.captured))
                self.captured.append(tensor_of(step, found))

    def text(self, of: Any) -> str:
        """The body that a function of (score, captured) builds."""
        graph = torch.fx.Graph()
        builder = GraphBuilder(graph)
        sizes = self.found.sizes
        device = self.found.query.meta["spec"].device
        specs = [TensorSpec(torch.float32, device, sizes)]
        specs += [TensorSpec(torch.int64, device, tuple(n if d == e else 1 for e, n in enumerate(sizes))) for d in range(4)]
        specs += [TensorSpec(c.dtype, device, c.sizes) for c in self.captured]
        values = []
        for n, spec in enumerate(specs):
            node = graph.placeholder(f"x{n}")
            node.meta["spec"] = spec
            values.append(PrimValue(spec, node))
        with builder:
            result = of(values[0], values[5:])
        graph.output((result.node,))
        return print_graph(PrimGraph.from_fx(graph), origins=False, canonical=True)

    def _tensor(self, step: Any, captured: list[PrimValue]) -> PrimValue:
        """The tensor of a step, with four axes."""
        if step.tensor in self._places:
            return captured[self._places[step.tensor]]
        given = _again(step.tensor, {})
        for n, sizes in enumerate(as_four(given.sizes, step.sizes, self.found.sizes) or ()):
            given = prims.reshape(given, sizes) if n else prims.expand(given, sizes)
        return given

    def changed(self, score: PrimValue, captured: list[PrimValue]) -> PrimValue:
        """All but what hides scores."""
        for step in self.found.steps:
            if step.kind == "scale":
                score = prims.mul(score, step.number)
            elif step.kind == "add":
                added = prims.convert(self._tensor(step, captured), torch.float32)
                score = prims.add(score, prims.mul(added, -1.0) if step.negated else added)
            elif step.number != -math.inf:
                number, mask = torch.tensor(step.number, dtype=step.dtype).item(), self._tensor(step, captured)
                score = prims.where(mask, *((number, score) if step.negated else (score, number)))
        return score

    def keep(self, score: PrimValue, captured: list[PrimValue]) -> PrimValue:
        """Where no step makes a score -inf."""
        kept = None
        for step in self.found.steps:
            if step.kind == "fill" and step.number == -math.inf:
                mask = self._tensor(step, captured)
                mask = prims.logical_not(mask) if step.negated else mask
                kept = mask if kept is None else prims.logical_and(kept, mask)
        return prims.full((), True, torch.bool, score.device) if kept is None else kept


def _is_of_places(node: Any) -> bool:
    """Whether a tensor is computed by few calls of positions and numbers, element by element."""
    seen: set[Any] = set()
    waiting = [node]
    while waiting:
        n = waiting.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.op != "call_function" or not isinstance(n.target, Op) or n.target.kind not in PLACED or len(seen) > MOST_CALLS:
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


__all__ = ["long_attention"]
