"""A launch order of groups: dependencies first, then what only reduces or is made of inputs alone, then the order of the program."""

import heapq

from ..ir.index import product
from .group import Group

MOST_POINTS = 1 << 16
"""Of what is computed before the rest, and so kept longer."""


def launch_order(groups: list[Group], predecessors: list[set[int]], group_of: dict[int, Group]) -> list[Group]:
    """Topological order that stays close to the program's own order, in which values die early.

    What only reduces runs as soon as what it reads is there: the gradients of biases and of the weights of norms are results, which
    the program computes at its end, and until then a backward would keep all that they are sums of; they read it from the cache, too.
    What little kernels of a GPU make of inputs, such as weights laid out anew, comes first: side by side they are one launch (batch.py).
    """
    waiting: dict[int, set[int]] = {g.number: set() for g in groups}
    followers: dict[int, set[int]] = {g.number: set() for g in groups}
    first: dict[int, int] = {}
    for node, group in group_of.items():
        first[group.number] = max(first.get(group.number, 0), node)
        for p in predecessors[node]:
            other = group_of[p].number
            if other != group.number:
                waiting[group.number].add(other)
                followers[other].add(group.number)
    by_number = {g.number: g for g in groups}
    place = {n: (not (_only_reduces(by_number[n]) if waiting[n] else _is_little(by_number[n])), first[n], n) for n in waiting}
    ready = [place[n] for n, before in waiting.items() if not before]
    heapq.heapify(ready)
    ordered: list[Group] = []
    while ready:
        *_, number = heapq.heappop(ready)
        ordered.append(by_number[number])
        for f in followers[number]:
            waiting[f].discard(number)
            if not waiting[f]:
                heapq.heappush(ready, place[f])
    assert len(ordered) == len(groups), "kernels depend on each other in a circle"
    return ordered


def _is_little(group: Group) -> bool:
    """Whether it is a kernel for few points on a GPU."""
    points, device = product(group.outer), group.members[0].node.device
    return device.type == "cuda" and not group.inner and isinstance(points, int) and points <= MOST_POINTS


def _only_reduces(group: Group) -> bool:
    """Whether all that the kernel writes are reductions of what it reads, and what is computed from these."""
    return bool(group.inner) and all(m.node.domain == "reduction" or m.level == "outer" for m in group.members)
