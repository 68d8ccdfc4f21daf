"""Minimum cuts: which vertices stay on the source's side of a maximum flow, or as it was answered before."""

from __future__ import annotations

import hashlib
from collections import deque

from .options import Answers

__all__ = ["INFINITE", "Edge", "known_side", "source_side"]

INFINITE = 2**30
"""The capacity of what may not be cut."""
FEW_EDGES = 1000
"""With so many, a flow is found here before scipy is imported."""
Edge = tuple[int, int, int]
"""From, to, capacity."""


def known_side(source: int, edges: list[Edge], answers: Answers | None) -> set[int]:
    """The source's side of a minimum cut; what was answered before is not solved again."""
    if answers is None:
        return source_side(source, edges)
    key = hashlib.sha256(repr(("next to the sink", source, edges)).encode()).hexdigest()
    known = _vertices(answers.get(key), source)
    if known is not None:
        return known
    found = source_side(source, edges)
    answers.put(key, " ".join(map(str, sorted(found))).encode())
    return found


def _vertices(answer: bytes | None, source: int) -> set[int] | None:
    """An answer that was kept; None where it is none, and the cut is solved again."""
    try:
        found = {int(v) for v in (answer or b"").split()}
    except ValueError:
        return None
    return found if source in found and found <= set(range(source + 1)) else None


def source_side(source: int, edges: list[Edge]) -> set[int]:
    """What no longer reaches the sink, which is the vertex after the source, under a maximum flow: of several cheapest cuts the one next
    to the sink, whichever way the flow is found."""
    found = _residual(source, edges) if len(edges) <= FEW_EDGES else _residual_by_scipy(source, edges)
    return set(range(source + 1)) - found


def _residual(source: int, edges: list[Edge]) -> set[int]:
    """What still reaches the sink, by the algorithm of E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with
    power estimation"."""
    sink = source + 1
    ends, left = list[int](), list[int]()
    """Of each edge, and after it of the same edge backwards: where it goes, what it can still take."""
    leaving: list[list[int]] = [[] for _ in range(sink + 1)]
    for start, end, capacity in edges:
        leaving[start].append(len(ends))
        leaving[end].append(len(ends) + 1)
        ends += [end, start]
        left += [capacity, 0]
    while True:
        distances = _distances(sink, ends, left, leaving)
        if source not in distances:
            return set(distances)
        untried, path, place = [list(edges) for edges in leaving], list[int](), source
        while True:
            if place == sink:
                least = min(left[edge] for edge in path)
                for edge in path:
                    left[edge] -= least
                    left[edge ^ 1] += least
                first = next(number for number, edge in enumerate(path) if not left[edge])
                place = ends[path[first] ^ 1]
                del path[first:]
            elif edges_here := untried[place]:
                edge = edges_here[-1]
                if left[edge] and distances.get(ends[edge], -1) == distances[place] - 1:
                    path.append(edge)
                    place = ends[edge]
                else:
                    edges_here.pop()
            elif path:
                place = ends[path.pop() ^ 1]
                untried[place].pop()
            else:
                break


def _distances(sink: int, ends: list[int], left: list[int], leaving: list[list[int]]) -> dict[int, int]:
    """Of each vertex that still reaches the sink: over how many edges."""
    found = {sink: 0}
    waiting = deque([sink])
    while waiting:
        vertex = waiting.popleft()
        for edge in leaving[vertex]:
            before = ends[edge]
            if before not in found and left[edge ^ 1]:
                found[before] = found[vertex] + 1
                waiting.append(before)
    return found


def _residual_by_scipy(source: int, edges: list[Edge]) -> set[int]:
    """The same. Its import takes longer than a few edges do."""
    import numpy
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    row, column, capacity = (numpy.array(c, dtype=numpy.int32) for c in zip(*edges, strict=True))
    matrix = csr_matrix((capacity, (row, column)), shape=(source + 2,) * 2)
    residual = (matrix - maximum_flow(matrix, source, source + 1).flow).tocsr()
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    return set(breadth_first_order(residual.transpose().tocsr(), source + 1, return_predecessors=False).tolist())
