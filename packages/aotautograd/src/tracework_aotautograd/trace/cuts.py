"""Where the history of a program is cut: at results that other results are computed from.

The caller holds such a result, and its hooks, `retain_grad` and gradients of others with respect to it concern all that comes to it. So
it is a leaf for what is computed from it, which gets an autograd node of its own. Where history goes past a result to what the result is
made of, too, that is cut there as well, at a value that the caller does not see: otherwise neither node could be first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from .. import _torch
from .._torch import edge_of

Edge = tuple[Any, int]
"""An autograd node and the number of one of its results."""
Gradients = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]
"""(edges, edges and leaves below them, tangents) -> what arrives there, None where nothing does."""


def made_at(value: Any) -> int:
    """When the autograd node of a value was made, among others: the engine comes to the latest first."""
    return _torch.sequence_number_of(value.grad_fn)


def gradients_at(
    wanted: Sequence[Sequence[Any]],
    roots: Sequence[Edge],
    tangents: Sequence[Any],
    instead: Mapping[Edge, Any],
    gradients: Gradients,
) -> list[Any]:
    """The sums of what arrives at these edges and leaves, None where nothing does. At the edges of `instead` the engine goes on with what
    that gives. gradients: runs the engine."""

    def hook_of(node: Any) -> Any:
        def hook(grads: tuple[Any, ...]) -> tuple[Any, ...]:
            pairs = [((node, number), grad) for number, grad in enumerate(grads)]
            return tuple([grad if grad is None else instead.get(edge, grad) for edge, grad in pairs])

        return hook

    number = RemovableHandle.next_id  # programs see what number the next hook of theirs gets
    handles = [node.register_prehook(hook_of(node)) for node in dict.fromkeys(node for node, _ in instead)]
    ends = {node for (node, _), gradient in instead.items() if gradient is None}
    for node in ends | {node for node, _ in passed(ends)}:
        if isinstance(node, torch.autograd.function.BackwardCFunction):  # it makes zeros of nothing, and goes on with them
            handles.append(node.register_hook(_nothing_of_nothing))
    try:
        to_edge = torch.autograd.graph.GradientEdge
        flat = [place if isinstance(place, torch.Tensor) else to_edge(*place) for places in wanted for place in places]
        arrived = iter(gradients([to_edge(*e) for e in roots], flat, tangents))
    finally:
        for handle in handles:
            handle.remove()
        RemovableHandle.next_id = number
    groups = [[g for g in islice(arrived, len(places)) if g is not None] for places in wanted]
    return [sum(group[1:], group[0]) if group else None for group in groups]


def _nothing_of_nothing(gradients: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return None if any(g is not None for g in given) else (None,) * len(gradients)


@contextlib.contextmanager
def order_of_arrival(leaves: Mapping[int, torch.Tensor]) -> Iterator[list[int]]:
    """The keys of leaves in the order in which a backward inside of the block comes to them."""
    number, order = RemovableHandle.next_id, list[int]()
    handles = [leaf.register_hook(lambda _, key=key: order.append(key)) for key, leaf in leaves.items()]
    try:
        yield order
    finally:
        for handle in handles:
            handle.remove()
        RemovableHandle.next_id = number


def find_cuts(
    results: Sequence[Any],
    cuttable: Collection[Edge],
    inputs: Collection[Any],
    passing: Collection[Edge],
    made: Callable[[], Mapping[Edge, Any]],
    views: Mapping[Edge, Edge | None],
) -> tuple[set[Edge], list[Any]]:
    """The edges to cut at, and of them the values that are no results.

    results: the values with histories. cuttable: edges of those that a cut may be at. inputs: autograd nodes where inputs begin, whose
    gradients are added up in any case. passing: edges of views, which pass gradients on as they are and belong to nobody. made: gives the
    values that may become results. views: edges of views among those to cut at, which have no node of their own here -> that of the result
    that they show, None for an input.
    """
    edges = [edge_of(value) for value in results]
    visible = passed({node for node, _ in edges}).intersection({*cuttable, *views})
    cuts, hidden = _untangled(edges, visible, inputs, passing, made, views)
    return _evened(edges, cuts, hidden, inputs, passing, made, views)


def _untangled(
    edges: Sequence[Edge],
    visible: set[Edge],
    inputs: Collection[Any],
    passing: Collection[Edge],
    made: Callable[[], Mapping[Edge, Any]],
    views: Mapping[Edge, Edge | None],
) -> tuple[set[Edge], dict[Edge, Any]]:
    """As many cuts at what is visible as can be, and the values that have to be cut at for that."""
    while visible:
        hidden: dict[Edge, Any] = {}
        while True:
            segments = [_segment(edge, visible | hidden.keys(), inputs, passing) for edge in (*edges, *hidden)]
            tangled = _tangled(segments, views)
            if not tangled:
                ends = {edge for segment in segments for edge in segment.ends}
                return ends | visible.intersection(views), hidden
            below = _first_shared(tangled, passing) - hidden.keys()
            values = made() if below else {}
            if not below or not below <= values.keys():
                break
            hidden.update((edge, values[edge]) for edge in _in_order(below, segments, passing))
        inner = {edge for segment in tangled for edge in segment.ends}
        if not inner & visible:  # the values that were cut at alone are tangled
            inner = visible
        visible = visible - inner
    return set(), {}


def _evened(
    edges: Sequence[Edge],
    cuts: set[Edge],
    hidden: dict[Edge, Any],
    inputs: Collection[Any],
    passing: Collection[Edge],
    made: Callable[[], Mapping[Edge, Any]],
    views: Mapping[Edge, Edge | None],
) -> tuple[set[Edge], list[Any]]:
    """With more cuts, if they can be made, where results that share history have different inputs, or end at different cuts: the engine
    goes on to all that is behind a node, also where none of its gradients leads, to hooks and to history that is gone."""
    while True:
        segments = [_segment(edge, cuts, inputs, passing) for edge in (*edges, *hidden)]
        uneven = [s for group in _groups(segments) if len({(s.inputs, frozenset(s.ends)) for s in group}) > 1 for s in group]
        below = _first_shared(uneven, passing) - cuts
        values = made() if below else {}
        if not below or not below <= values.keys():
            break
        more = hidden | {edge: values[edge] for edge in _in_order(below, segments, passing)}
        if _tangled([_segment(edge, cuts | below, inputs, passing) for edge in (*edges, *more)], views):
            break
        cuts, hidden = cuts | below, more
    return cuts, [*hidden.values()]


@dataclass(eq=False)
class _Segment:
    """History from one edge down to cuts and inputs. `nodes`: without those of inputs and of views; `ends`: the cuts."""

    start: Edge
    nodes: dict[Any, None]
    ends: dict[Edge, None]
    inputs: frozenset[Any]


def behind(start: Edge, cuts: Collection[Edge], inputs: Collection[Any]) -> Collection[Any]:
    """The autograd nodes from an edge down to cuts and inputs."""
    return _segment(start, cuts, inputs, ()).nodes


def _segment(start: Edge, cuts: Collection[Edge], inputs: Collection[Any], passing: Collection[Edge]) -> _Segment:
    nodes: dict[Any, None] = {}
    ends: dict[Edge, None] = {}
    seen, reached = set(), set()
    waiting = [start]
    while waiting:
        edge = waiting.pop()
        node = edge[0]
        if node in inputs:
            reached.add(node)
        if node in inputs or hasattr(node, "variable"):
            continue
        if edge not in passing:
            nodes[node] = None
        if node in seen:
            continue
        seen.add(node)
        for below in node.next_functions:
            if below in cuts:
                ends[below] = None
            elif below[0] is not None:
                waiting.append(below)
    return _Segment(start, nodes, ends, frozenset(reached))


def passed(waiting: Iterable[Any]) -> set[Edge]:
    """All edges below these nodes."""
    seen, found, left = set(), set(), [*waiting]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        below = [edge for edge in node.next_functions if edge[0] is not None]
        found.update(below)
        left.extend(node for node, _ in below)
    return found


def _tangled(segments: Sequence[_Segment], views: Mapping[Edge, Edge | None]) -> list[_Segment]:
    """Segments of which none can be first or last: they share history with one that they end at, if by way of others."""
    groups = _groups(segments)
    place_of = {segment.start: place for place, group in enumerate(groups) for segment in group}
    taken = [(place, views.get(e, e)) for place, group in enumerate(groups) for segment in group for e in segment.ends]
    after = {(place, place_of[edge]) for place, edge in taken if edge is not None}
    left = {*range(len(groups))}
    while free := {
        g for g in left if not any(a == g and b in left for a, b in after) or not any(b == g and a in left for a, b in after)
    }:
        left -= free
    return [segment for place in sorted(left) for segment in groups[place]]


def _groups(segments: Sequence[_Segment]) -> list[list[_Segment]]:
    """The segments, those together that share history, if by way of others."""
    owners: dict[Any, int] = {}
    group = [*range(len(segments))]

    def root(place: int) -> int:
        while group[place] != place:
            place = group[place]
        return place

    for place, segment in enumerate(segments):
        for node in segment.nodes:
            group[root(place)] = root(owners.setdefault(node, place))
    found: dict[int, list[_Segment]] = {}
    for place, segment in enumerate(segments):
        found.setdefault(root(place), []).append(segment)
    return [*found.values()]


def _first_shared(segments: Sequence[_Segment], passing: Collection[Edge]) -> set[Edge]:
    """Where each segment goes over to history that it shares with more of the others."""
    masks: dict[Any, int] = {}
    for place, segment in enumerate(segments):
        for node in segment.nodes:
            masks[node] = masks.get(node, 0) | 1 << place
    cuts = {edge for segment in segments for edge in segment.ends}
    return {
        edge
        for node, mask in masks.items()
        for edge in _behind_views(node, cuts, passing)
        if edge not in cuts and masks.get(edge[0], mask) != mask
    }


def _behind_views(node: Any, cuts: Collection[Edge], passing: Collection[Edge]) -> Iterator[Edge]:
    """The edges below a node, those of what views show in their places."""
    for edge in node.next_functions:
        while edge in passing and edge not in cuts:
            (edge,) = edge[0].next_functions[:1]
        yield edge


def _in_order(edges: Collection[Edge], segments: Sequence[_Segment], passing: Collection[Edge]) -> list[Edge]:
    """The edges in the order in which the segments lead to them: sets of nodes have none."""
    found = (e for s in segments for node in s.nodes for e in _behind_views(node, s.ends, passing) if e in edges)
    return list(dict.fromkeys(found))
