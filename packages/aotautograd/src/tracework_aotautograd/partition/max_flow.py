"""A minimum cut of a network, by the blocking flows of Y. Dinitz (1970). No torch, and no library that would have to be imported for it."""

from __future__ import annotations

from collections.abc import Iterable


class Network:
    """Nodes 0..count-1 and arcs with capacities. Arc 2k is the k-th edge, arc 2k+1 its way back."""

    def __init__(self, count: int, edges: Iterable[tuple[int, int, int]]) -> None:
        self.heads: list[int] = []
        self.left: list[int] = []
        self.arcs: list[list[int]] = [[] for _ in range(count)]
        for tail, head, capacity in edges:
            self.arcs[tail].append(len(self.heads))
            self.arcs[head].append(len(self.heads) + 1)
            self.heads += (head, tail)
            self.left += (capacity, 0)

    def source_side(self, source: int, sink: int) -> set[int]:
        """The nodes before the minimum cut that lies nearest to the source."""
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return {node for node, level in enumerate(levels) if level >= 0}
            self._block(source, sink, levels)

    def _levels(self, source: int) -> list[int]:
        """Distance from the source over arcs with capacity left; -1 where there is no way."""
        levels = [-1] * len(self.arcs)
        levels[source] = 0
        front = [source]
        while front:
            following = []
            for node in front:
                for arc in self.arcs[node]:
                    head = self.heads[arc]
                    if levels[head] < 0 and self.left[arc]:
                        levels[head] = levels[node] + 1
                        following.append(head)
            front = following
        return levels

    def _block(self, source: int, sink: int, levels: list[int]) -> None:
        """Send flow along shortest ways until none is left; each arc is looked at once."""
        heads, left, tried = self.heads, self.left, [0] * len(self.arcs)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                node = self._send(path, source)
                continue
            arcs, place = self.arcs[node], tried[node]
            while place < len(arcs) and not (left[arcs[place]] and levels[heads[arcs[place]]] == levels[node] + 1):
                place += 1
            tried[node] = place
            if place < len(arcs):
                path.append(arcs[place])
                node = heads[arcs[place]]
            elif path:
                node = heads[path.pop() ^ 1]
                tried[node] += 1
            else:
                return

    def _send(self, path: list[int], source: int) -> int:
        """Fill the narrowest arc of a way to the sink; go on from the tail of the first full one."""
        flow = min(self.left[arc] for arc in path)
        for arc in path:
            self.left[arc] -= flow
            self.left[arc ^ 1] += flow
        full = next(i for i, arc in enumerate(path) if not self.left[arc])
        node = self.heads[path[full] ^ 1]
        del path[full:]
        return node
