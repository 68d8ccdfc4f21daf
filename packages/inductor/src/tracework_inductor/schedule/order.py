"""A launch order of groups: dependencies first, then the order of the program."""

import heapq

from .group import Group


def launch_order(groups: list[Group], predecessors: list[set[int]], group_of: dict[int, Group]) -> list[Group]:
    """Topological order that stays close to the program's own order, in which values die early."""
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
    ready = [(first[n], n) for n, before in waiting.items() if not before]
    heapq.heapify(ready)
    by_number = {g.number: g for g in groups}
    ordered: list[Group] = []
    while ready:
        _, number = heapq.heappop(ready)
        ordered.append(by_number[number])
        for f in followers[number]:
            waiting[f].discard(number)
            if not waiting[f]:
                heapq.heappush(ready, (first[f], f))
    assert len(ordered) == len(groups), "kernels depend on each other in a circle"
    return ordered
