"""flex_attention of a captured graph as one operator: what its functions do to scores becomes the operator's bodies, before the trace.

What the bodies read besides scores and indices is computed outside of them, and they are functions of that. Where it needs gradients, it is
what depends on batch, head and one of query and key, or on the distance of the two: the graph computes it for each of these, and the operator
has gradients for it. Where more depends on both, or a function cannot be written as a body, the graph stays: it computes all scores.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from tracework_primops import PrimError, TensorSpec, attended, attention_of_bodies, copy_node, trace_bodies
from tracework_primops.attention import Bodies

from .. import _torch
from ..nodes import ancestors, function_of, operand_of

__all__ = ["ALL_SCORES", "with_attention"]

log = logging.getLogger("tracework.aotautograd.attention")
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})
MOST_WIDTH = 256
ALL_SCORES = "all_scores"
"""Key in a graph's meta of the reasons why calls of flex_attention compute all scores."""


def with_attention(gm: fx.GraphModule, devices: Collection[str]) -> fx.GraphModule:
    """The graph with attention as one operator on devices of these types; the same object where there is none. Under ALL_SCORES, its
    meta says why others compute all scores."""
    calls = {node: call for node in gm.graph.nodes if node.target is attended and (call := _call_or_reason(gm, node, devices))}
    if not calls:
        return gm
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node in calls:
            read = _read(graph, node, calls[node], made)
            args = fx.map_arg(calls[node].args(), lambda n, read=read: read.get(n) or made[n])  # type: ignore[misc]  # mypy infers no lambda with a default
            made[node] = graph.call_function(attention_of_bodies, args)
            made[node].meta.update(node.meta)
        else:
            made[node] = copy_node(graph, node, made.__getitem__)
    unread = {made[n] for n in ancestors(calls) if n.op in ("call_function", "call_method") and n not in calls}
    graph.eliminate_dead_code(is_impure_node=lambda node: node not in unread)
    result = _torch.graph_module(graph, gm)
    result.meta.update(gm.meta)
    return result


@dataclass(frozen=True)
class _Call:
    """What becomes one call of the operator. read: captured nodes with gradients, and their axes."""

    operands: tuple[fx.Node, ...]
    indices: tuple[fx.Node, ...]
    captured: list[fx.Node]
    sizes: list[fx.Node]
    blocks: Sequence[fx.Node]
    bodies: Bodies
    scale: float
    extents: Sequence[int]
    read: Mapping[fx.Node, str]

    def args(self) -> tuple[Any, ...]:
        """The arguments of attention_of_bodies."""
        score, keep, slope, trained = self.bodies
        texts = score, keep, slope, tuple(map(tuple, trained))
        return *self.operands, self.captured, list(self.blocks), self.sizes, *texts, self.scale, list(self.extents)


def _read(graph: fx.Graph, node: fx.Node, call: _Call, made: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    """What the operator reads in the place of captured nodes: a number of the CPU on its device, what has gradients with the dims of its axes
    alone, and what depends on distances once for each."""
    device = operand_of(node).meta["example_value"].device
    found: dict[fx.Node, fx.Node] = {}
    distances: dict[fx.Node, fx.Node] = {}

    def method(name: str, *args: Any) -> fx.Node:
        new = graph.call_method(name, args)
        new.meta["stack"] = node.meta.get("stack")
        return new

    for n in call.captured:
        if n.meta["example_value"].device != device:
            found[n] = method("to", made[n], device)
    for n, axes in call.read.items():
        if "d" in axes:
            if not distances:
                i, j = (made[index] for index in call.indices[2:])
                # From the lowest on: those of the first query from all keys, from the last one on, then those of others from the first key.
                parts = [method("flatten", x) for x in (method("neg", method("flip", j, (3,))), i)]
                first = method("narrow", parts[1], 0, 1, graph.call_function(operator.sub, (method("numel", i), 1)))
                row = graph.call_function(torch.cat, ([parts[0], first],))
                distances[call.indices[2]] = method("view", row, 1, 1, 1, -1)
                distances[call.indices[3]] = method("narrow", j, 3, 0, 1)
            for inner in sorted(ancestors([n])):
                if inner not in distances and any(m in distances for m in inner.all_input_nodes):
                    distances[inner] = copy_node(graph, inner, lambda m: distances.get(m) or made[m])
        given = distances[n] if "d" in axes else found.get(n, made[n])
        if n.meta["example_value"].ndim:
            kept = {"b": 0, "h": 1, "i": 2, "j": 3, "d": 3}
            rest = tuple(dim for dim in range(4) if dim not in {kept[axis] for axis in axes})
            given = method("squeeze", given, rest)
        found[n] = given
    return found


def _call_or_reason(gm: fx.GraphModule, node: fx.Node, devices: Collection[str]) -> _Call | None:
    """The operator that computes what a call of `attended` does, on these devices; None where the graph is told why not."""
    if operand_of(node).meta["example_value"].device.type not in devices:
        return None
    try:
        return _call(gm, node)
    except (PrimError, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        reason = f"{error} ({node.meta.get('stack') or 'flex_attention'})"
        log.debug("attention computes all scores: %s", reason)
        gm.meta.setdefault(ALL_SCORES, []).append(reason)
        return None


def _call(gm: fx.GraphModule, node: fx.Node) -> _Call:
    """The operator that computes what a call of `attended` does. Raises PrimError, or what torch raises of its functions."""
    arguments: tuple[Any, ...] = node.args  # those of `attended`
    query, key, value, scores, indices, changed, mask, scale, blocks, extents = arguments
    q, k, v = (n.meta["example_value"] for n in (query, key, value))
    if not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES or type(scale) not in (int, float):
        raise PrimError("operands of other dtypes than the kernel's, or a scale that is no number")
    table: Any = gm.meta.get("symbols")
    fixed = (q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    if any(type(n) is not int and not table.has_hint(table.from_symint(n)) for n in fixed):
        raise PrimError("heads or widths depend on data")
    numbers = [n if type(n) is int else table.hint(table.from_symint(n)) for n in fixed]
    if max(numbers[2:]) > MOST_WIDTH or k.shape[1] != v.shape[1]:
        raise PrimError(f"rows of more than {MOST_WIDTH} elements, or keys and values of other heads")
    if 0 in numbers or any(type(n) is int and n == 0 for x in (q, k) for n in x.shape):
        raise PrimError("there is nothing to compute")
    between = _Between(scores, indices, changed, mask)
    captured = [n.meta["example_value"] for n in between.captured]
    given = [x for x in captured if isinstance(x, torch.Tensor)]
    if any(x.device != q.device and (x.ndim or x.device.type != "cpu") for x in given):
        raise PrimError("a function reads a tensor of another device")
    trained = {place: between.axes[n] for place, n in enumerate(between.captured) if n in between.axes}
    specs = [_spec_of_axes(x, trained[place], q, k, table) if place in trained else x for place, x in enumerate(captured)]
    bodies = trace_bodies(between.function(0), between.function(1), specs, torch.float32, q.device, table, trained)
    for size in fixed:  # heads and widths are numbers in kernels; as under torch.compile, no symbols
        int(size)
    tensors = [n for n, x in zip(between.captured, captured, strict=True) if isinstance(x, torch.Tensor)]
    places = {tensors.index(between.captured[place]): axes for place, axes in trained.items()}
    factors = tuple(of._replace(place=place) for of, place in zip(bodies.trained, places, strict=True))
    return _Call(
        (query, key, value),
        indices,
        tensors,
        [n for n, x in zip(between.captured, captured, strict=True) if not isinstance(x, torch.Tensor)],
        blocks,
        bodies._replace(trained=factors),
        float(scale),
        extents,
        {tensors[place]: axes for place, axes in places.items()},
    )


def _spec_of_axes(x: torch.Tensor, axes: str, q: torch.Tensor, k: torch.Tensor, table: Any) -> TensorSpec:
    """Of what is read of a tensor for the scores of some axes."""
    sizes = {"b": q.shape[0], "h": q.shape[1], "i": q.shape[2], "j": k.shape[2], "d": q.shape[2] + k.shape[2] - 1}
    return TensorSpec(x.dtype, x.device, tuple(n if type(n) is int else table.from_symint(n) for n in map(sizes.get, axes)))


class _Between:
    """The nodes by which results are computed from scores and indices, and what else these read.

    axes: of nodes that are read as well, since they have gradients and depend on few of the indices. Raises PrimError where something has
    gradients and depends on all of them.
    """

    def __init__(self, scores: fx.Node, indices: Sequence[fx.Node], changed: fx.Node, mask: fx.Node) -> None:
        self.given, self.results = [scores, *indices], [changed, mask]
        depends = set(self.given)
        nodes = sorted(ancestors(self.results))
        for node in nodes:
            if any(n in depends for n in node.all_input_nodes):
                depends.add(node)
        self.axes = _Trained(self.given, [n for n in nodes if n in depends], changed).axes
        inside = set(self.given)
        waiting = [n for n in self.results if n in depends and n not in self.axes]
        while waiting:
            node = waiting.pop()
            if node not in inside:
                inside.add(node)
                waiting += [n for n in node.all_input_nodes if n in depends and n not in self.axes]
        self.nodes = [n for n in nodes if n in inside and n not in self.given]
        read = [n for node in self.nodes for n in node.all_input_nodes] + self.results
        self.captured = list(dict.fromkeys(n for n in read if n not in inside))

    def function(self, result: int) -> Callable[..., Any]:
        """One result as a function of what is given and captured."""

        def run(*operands: Any) -> Any:
            values = dict(zip([*self.given, *self.captured], operands, strict=True))
            for node in self.nodes:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                if node.op == "call_method":
                    values[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
                else:
                    values[node] = function_of(node)(*args, **kwargs)
            return values[self.results[result]]

        return run


_INDICES = "bhij"
_LINEAR = {
    **dict.fromkeys((operator.add, torch.add, "add"), (1, 1)),
    **dict.fromkeys((operator.sub, torch.sub, "sub"), (1, -1)),
    **dict.fromkeys((operator.neg, torch.neg, "neg"), (-1,)),
}
_COMPARED = frozenset({getattr(module, n) for module in (operator, torch) for n in ("eq", "ne", "lt", "le", "gt", "ge")})


class _Trained:
    """Which nodes with gradients bodies read, and the axes on which they depend.

    What depends on the scores or on both query and key is computed in the body, if what it reads with gradients is read by these axes; an
    element that is taken of a tensor by the distance of query and key is read by that.
    """

    def __init__(self, given: Sequence[fx.Node], nodes: Sequence[fx.Node], changed: fx.Node) -> None:
        scores, *self.indices = given
        self.axes: dict[fx.Node, str] = {}
        if not _has_gradient(changed):
            return
        depends: dict[fx.Node, frozenset[str]] = {scores: frozenset("s")}
        depends.update((index, frozenset(letter)) for index, letter in zip(self.indices, _INDICES, strict=True))
        self.shifts: dict[fx.Node, int | None] = {}
        found: dict[fx.Node, str] = {}
        inside: list[fx.Node] = []
        for node in nodes:
            if node not in depends:
                depends[node] = frozenset().union(*(depends[n] for n in node.all_input_nodes if n in depends))
        trained: set[fx.Node] = set()
        for node in nodes:
            outside = [n for n in node.all_input_nodes if n not in depends and _has_gradient(n)]
            trained.update(outside)
            if node in given or not _has_gradient(node) or trained.isdisjoint(node.all_input_nodes):
                continue
            trained.add(node)
            if "s" not in depends[node] and not depends[node] >= {"i", "j"}:
                found[node] = self._axes(node, depends[node])
                continue
            whole = [n for n in outside if n.meta["example_value"].ndim]
            if whole and node.target is operator.getitem and "s" not in depends[node] and self._shift(node, depends) == 0:
                found[node] = self._axes(node, depends[node] - {"i", "j"}) + "d"
            elif whole:
                raise PrimError(f"{whole[0]} has gradients and is read by query and key, not by their distance")
            else:
                found.update((n, "") for n in outside)
                inside.append(node)
        read = {n for node in inside for n in node.all_input_nodes} | {changed}
        self.axes = {node: axes for node, axes in found.items() if node in read}

    @staticmethod
    def _axes(node: fx.Node, depends: Collection[str]) -> str:
        """Those on which a node depends and along which it has several elements."""
        shape = node.meta["example_value"].shape
        if len(shape) not in (0, 4):
            raise PrimError(f"{node} has gradients and {len(shape)} dims")
        return "".join(a for a, n in zip(_INDICES, shape) if a in depends and not (type(n) is int and n == 1))

    def _shift(self, node: fx.Node, depends: Mapping[fx.Node, frozenset[str]]) -> int | None:
        """By how much an index grows where query and key grow by one; None where that is not the same everywhere."""
        if node in self.indices[2:]:
            return 1
        if depends.get(node, frozenset()).isdisjoint("ij"):
            return 0
        if node not in self.shifts:
            self.shifts[node] = self._shift_of_call(node, depends)
        return self.shifts[node]

    def _shift_of_call(self, node: fx.Node, depends: Mapping[fx.Node, frozenset[str]]) -> int | None:
        shifts = [self._shift(n, depends) for n in node.all_input_nodes]
        if None in shifts:
            return None
        signs = _LINEAR.get(node.target) if not node.kwargs else None
        if signs is not None and len(signs) == len(node.args):
            parts = [self._shift(a, depends) if isinstance(a, fx.Node) else 0 for a in node.args]
            return sum(sign * part for sign, part in zip(signs, parts, strict=True) if part)
        if node.target in _COMPARED and len(set(shifts)) == 1 == len(shifts) - 1:
            return 0
        return 0 if not any(shifts) else None


def _has_gradient(node: fx.Node) -> bool:
    example = node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and example.requires_grad
