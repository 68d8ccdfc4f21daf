"""Minimum cuts: which vertices stay on the source's side, by scipy's maximum flow, or as it was answered before."""

from __future__ import annotations

import hashlib

from .options import Answers

__all__ = ["INFINITE", "Edge", "known_side", "source_side"]

INFINITE = 2**30
"""The capacity of what may not be cut."""
Edge = tuple[int, int, int]
"""From, to, capacity."""


def known_side(source: int, edges: list[Edge], answers: Answers | None) -> set[int]:
    """The source's side of a minimum cut; what was answered before is not solved again, and scipy not imported for it."""
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
    to the sink."""
    # most graphs have nothing to cut, or have their cut kept: they should not wait for scipy
    import numpy
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    row, column, capacity = (numpy.array(c, dtype=numpy.int32) for c in zip(*edges, strict=True))
    matrix = csr_matrix((capacity, (row, column)), shape=(source + 2,) * 2)
    residual = (matrix - maximum_flow(matrix, source, source + 1).flow).tocsr()
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    behind = breadth_first_order(residual.transpose().tocsr(), source + 1, return_predecessors=False)
    return set(range(source + 1)) - set(behind.tolist())
