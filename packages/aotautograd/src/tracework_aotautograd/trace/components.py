"""Which results and inputs have a history that hangs together, and the gradients of each such component by themselves.

Eager's backward of a loss walks, and frees, the history of that loss alone. So results whose gradients have nothing in common get
autograd nodes of their own; those that one of eager's nodes gives stay together, as their hooks do. Where an input's gradient adds up
what comes from several, the engine does that instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from tracework_primops import Condition, is_collective

from .. import _torch
from ..nodes import function_of
from ..signature import Component
from .memory import fit
from .views import Emit

aten = torch.ops.aten

_BACKWARDS_OF_VIEWS = frozenset(
    (
        *(aten.view.default, aten._unsafe_view.default, aten.permute.default, aten.t.default, aten.transpose.int),
        *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.sum.dim_IntList),
        *(aten.slice_backward.default, aten.select_backward.default, aten.diagonal_backward.default, aten.clone.default),
        *(aten.select.int, aten.slice.Tensor, aten.expand.default, aten.neg.default),
    )
)
"""What comes of a sum through these, and through what repeats, is the sum of what comes of its parts."""
_BACKWARDS_OF_SEVERAL_VIEWS = frozenset((aten.stack.default, aten.cat.default))
"""The same, of views that are made together, as split and unbind make them."""


def components(
    graph: fx.Graph,
    tangents: Mapping[int, fx.Node],
    gradients: Mapping[int, Any],
    cuts: Mapping[int, fx.Node],
    views: Mapping[int, int | None],
    times: Mapping[int, int],
    emit: Emit,
) -> list[tuple[Component, list[fx.Node]]] | None:
    """The components, each with one gradient for each of its inputs and results; new sums go to the end of the graph.

    tangents: graph output slot -> the placeholder of its tangent. gradients: input slot -> node, or None where no result's history
    leads. cuts: slots of results that others are computed from -> the gradients that come to them from those. views: of these the slots
    that no component gives -> that of what it is a view of, None for an input. times: graph output slot -> when its node was made, by
    which they are put in order; those of one node stay together. None where no order of the components has each one behind those whose
    results it takes.
    """
    reached = {slot: node for slot, node in gradients.items() if node is not None}
    places = [*tangents.values()]
    sources = sources_of(graph.nodes, places)
    found = []
    of_one: dict[int, int] = {}  # time -> the tangents of what one operator gives
    for place, slot in enumerate(tangents):
        of_one[times[slot]] = of_one.get(times[slot], 0) | 1 << place
    for group in _groups(graph, len(places), {*reached.values(), *cuts.values()}, sources, of_one.values()):
        inputs, results = (
            {slot: share for slot, node in nodes.items() if (share := _share(emit, node, group, sources)) is not None}
            for nodes in (reached, cuts)
        )
        own = tuple(place for place in range(len(places)) if group >> place & 1)
        found.append(
            (Component(own, tuple(inputs), tuple(results), group in of_one.values()), [*inputs.values(), *results.values()])
        )
    slots = [*tangents]
    found.sort(key=lambda part: max(times[slots[place]] for place in part[0].tangents))
    return _in_order(found, slots, views) if cuts else found


def _in_order(
    found: list[tuple[Component, list[fx.Node]]], slots: Sequence[int], views: Mapping[int, int | None]
) -> list[tuple[Component, list[fx.Node]]] | None:
    ordered: list[tuple[Component, list[fx.Node]]] = []
    there: set[int] = set()
    while len(ordered) < len(found):
        for slot, base in views.items():  # a view of a view is behind it
            if base is None or base in there:
                there.add(slot)
        part = next((p for p in found if p not in ordered and there.issuperset(p[0].results)), None)
        if part is None:
            return None
        ordered.append(part)
        there.update(slots[place] for place in part[0].tangents)
    return ordered


def sources_of(nodes: Iterable[fx.Node], tangents: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """For each node the tangents that it is computed from, as the bits of a number."""
    found = {node: 1 << place for place, node in enumerate(tangents)}
    for node in nodes:
        bits = found.get(node, 0)
        for given in node.all_input_nodes:
            bits |= found[given]
        found[node] = bits
    return found


def together(nodes: Sequence[fx.Node], results: Collection[Any], sources: Mapping[fx.Node, int]) -> set[int]:
    """Sets of tangents that one node is computed from, of those that do more than add up gradients of inputs."""
    needed = set(results)
    sums: set[fx.Node] = set()
    found = set()
    for node in reversed(nodes):
        if node not in needed:
            continue
        needed.update(node.all_input_nodes)
        if (_is_sum(node) or _is_of_view(node, sources)) and all(
            user in sums or user not in needed or user.op == "output" for user in node.users
        ):
            sums.add(node)
        else:
            found.add(sources[node])
    return found


def _operands(node: fx.Node) -> list[fx.Node]:
    return [a for a in node.args if isinstance(a, fx.Node)]


def _is_sum(node: fx.Node) -> bool:
    """Whether a node adds up two tensors of one size and dtype, as the engine does with gradients."""
    operands = _operands(node)
    if node.target is not aten.add.Tensor or node.kwargs or len(operands) != len(node.args):
        return False
    values = [n.meta["val"] for n in (node, *operands)]
    if not all(isinstance(value, torch.Tensor) for value in values):  # a size
        return False
    made, *added = values
    return all(value.dtype is made.dtype and _is_as_large(value, made) for value in added)


def _moving(node: fx.Node, sources: Mapping[fx.Node, int]) -> list[fx.Node]:
    """The tensors that a node is computed from and that tangents are in; beside them a view's backward has zeros alone."""
    return [n for n in node.all_input_nodes if sources[n] and isinstance(n.meta["val"], torch.Tensor)]


def _is_of_view(node: fx.Node, sources: Mapping[fx.Node, int]) -> bool:
    """Whether a node is the backward of a view."""
    several = node.target in _BACKWARDS_OF_SEVERAL_VIEWS
    if not (several or node.target in _BACKWARDS_OF_VIEWS) or node.meta["phase"] != "backward":
        return False
    moving = _moving(node, sources)
    dtype = node.meta["val"].dtype
    return (len(moving) == 1 or several and bool(moving)) and all(n.meta["val"].dtype is dtype for n in moving)


def _is_as_large(a: Any, b: Any) -> bool:
    """Whether two tensors are known to have one size; those of two inputs may be equal by what was decided while tracing."""
    table = a.mode.table

    def equal(x: Any, y: Any) -> bool:
        return x == y or table is not None and table.is_true(Condition.compare("==", x, y)) is True

    return a.ndim == b.ndim and all(map(equal, a.spec.sizes, b.spec.sizes))


def _groups(
    graph: fx.Graph, count: int, results: set[fx.Node], sources: Mapping[fx.Node, int], of_one: Iterable[int]
) -> list[int]:
    everything = (1 << count) - 1
    if count < 2 or any(not sources[node] for node in results) or _is_one_in_backward(graph):
        return [everything]
    groups: list[int] = []
    for mask in together(list(graph.nodes), results, sources).union(of_one) - {0}:
        joined = [group for group in groups if group & mask]
        for group in joined:
            mask |= group
        groups = [group for group in groups if group not in joined] + [mask]
    if not groups:
        return [everything]
    groups.sort(key=lambda group: group & -group)
    nowhere = everything & ~sum(groups)  # results whose history leads to no input
    return groups + [1 << place for place in range(count) if nowhere >> place & 1]


def _is_one_in_backward(graph: fx.Graph) -> bool:
    """Whether gradients are computed from random numbers of the backward, which are drawn once, or with other processes, which all call the
    same."""
    return any(n.meta["phase"] == "backward" and (_torch.draws(n.target) or is_collective(n.target)) for n in graph.nodes)


def _share(emit: Emit, node: fx.Node, group: int, sources: Mapping[fx.Node, int]) -> fx.Node | None:
    """What of a gradient comes from the tangents of a group."""
    bits = sources.get(node, group)
    if not bits & ~group:
        return node
    if not bits & group:
        return None
    operands = _operands(node) if _is_sum(node) else _moving(node, sources)
    shares = {operand: _share(emit, operand, group, sources) for operand in operands}  # one may be there twice
    there = [(operand, share) for operand in operands if (share := shares[operand]) is not None]
    if _is_sum(node) and len(there) == 1:
        return there[0][1]
    laid_out = {operand: fit(emit, share, operand.meta["val"]) for operand, share in there}
    if not _is_sum(node):
        laid_out |= {operand: _zeros(emit, operand.meta["val"]) for operand in operands if shares[operand] is None}
    args = fx.map_arg(node.args, lambda operand: laid_out.get(operand, operand))
    made = node.graph.call_function(function_of(node), args, node.kwargs)
    made.meta.update(node.meta)
    return made


def _zeros(emit: Emit, like: torch.Tensor) -> fx.Node:
    return emit(aten.full.default, list(like.shape), 0, dtype=like.dtype, device=like.device)
