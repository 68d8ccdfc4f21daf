"""A launch order of groups: dependencies first, then what only reduces or is made of inputs alone, then the order of the program. What other
processes send is waited for when there is nothing else to do."""

import heapq
from collections.abc import Collection, Mapping

from ..ir.index import product
from .group import Group

MOST_POINTS = 1 << 16
"""Of what is computed before the rest, and so kept longer."""


def launch_order(
    groups: list[Group], predecessors: list[set[int]], group_of: dict[int, Group], between: Collection[int] = ()
) -> list[Group]:
    """Topological order that stays close to the program's own order, in which values die early.

    between: numbers of groups that no CUDA graph records. They are put together, so that they cut the others into as few parts as the
    dependencies allow.

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
    place = {n: (_priority(by_number[n], not waiting[n]), first[n], n) for n in waiting}
    orders = [_ordered(waiting, followers, place, between, first) for first in ((False, True) if between else (False,))]
    numbers = min(orders, key=lambda order: sum((a in between) != (b in between) for a, b in zip(order, order[1:])))
    assert len(numbers) == len(groups), "kernels depend on each other in a circle"
    return [by_number[number] for number in numbers]


def _ordered(
    waiting: Mapping[int, Collection[int]],
    followers: Mapping[int, Collection[int]],
    place: Mapping[int, tuple[int, int, int]],
    between: Collection[int],
    turn: bool,
) -> list[int]:
    """All that is ready of one kind, then of the other, beginning with the kind `turn`: no order has fewer changes that begins so."""
    left = {number: len(before) for number, before in waiting.items()}
    ready: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}
    for number, count in left.items():
        if not count:
            ready[number in between].append(place[number])
    for heap in ready.values():
        heapq.heapify(heap)
    ordered: list[int] = []
    while ready[turn] or ready[not turn]:
        turn = turn if ready[turn] else not turn
        *_, number = heapq.heappop(ready[turn])
        ordered.append(number)
        for follower in followers[number]:
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(ready[follower in between], place[follower])
    return ordered


def _priority(group: Group, is_first: bool) -> int:
    if (_is_little if is_first else _only_reduces)(group):
        return 0
    return 2 if ".wait_tensor." in getattr(group.members[0].node, "target", "") else 1


def _is_little(group: Group) -> bool:
    """Whether it is a kernel for few points on a GPU."""
    points, device = product(group.outer), group.members[0].node.device
    return device.type == "cuda" and not group.inner and isinstance(points, int) and points <= MOST_POINTS


def _only_reduces(group: Group) -> bool:
    """Whether all that the kernel writes are reductions of what it reads, and what is computed from these."""
    return bool(group.inner) and all(m.node.domain == "reduction" or m.level == "outer" for m in group.members)
