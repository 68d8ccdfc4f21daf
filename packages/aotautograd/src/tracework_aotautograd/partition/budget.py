"""The values to keep within a number of bytes, with the least to compute again.

Each value is kept, or computed again from others that are, or not needed: a problem of choice whose price is the traffic of what is kept
and the work of what is computed again. Without the limit it is a minimum cut. With a price on each kept byte it still is one, and a search
for the price that meets the limit gives the best choice for the bytes that it comes to: points of the lower convex hull. Between those the
limit leaves room: small graphs are solved exactly, as an integer programme; in large ones what is worth most per byte fills the room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import fx

from ..flow import INFINITE, Edge, known_side
from ..options import Answers
from .default import is_constant
from .recompute import Recompute, of_target
from .work import work_of

__all__ = ["Choice", "Problem"]

FEW_VALUES = 250
"""With so many that may be kept or computed again, a graph is solved exactly."""
SECONDS = 5.0
"""For the exact solution; what was found until then counts."""
STEPS = 14
"""Of the search for a price."""
LARGEST = 2**20
"""Capacity of an edge: what flows has to fit into 32 bits."""


@dataclass(frozen=True)
class Choice:
    """Values that are kept, the bytes that this takes, the work of what is computed again, and how many operators that is, without those
    that move nothing."""

    kept: tuple[fx.Node, ...]
    bytes: int
    work: float
    again: int


@dataclass(frozen=True)
class Problem:
    """values: all that the readers can be computed from, in the graph's order. free: those that may be computed again. unkept: those that
    cannot be kept. prices: of keeping each of the others, in bytes of traffic; sizes: the bytes that it takes, none for inputs that are kept
    as they are."""

    values: Sequence[fx.Node]
    readers: frozenset[fx.Node]
    free: frozenset[fx.Node]
    unkept: frozenset[fx.Node]
    prices: dict[fx.Node, float]
    sizes: dict[fx.Node, int]
    answers: Answers | None = None

    def solve(self, limit: float) -> Choice:
        """The best choice that was found within the limit, in bytes; where none is, the one with the fewest bytes."""
        if (everything := self._cut(0.0)).bytes <= limit:
            return everything
        least = self._cut(2.0**STEPS)
        if least.bytes > limit:
            return least
        best, low, high = least, -8.0, float(STEPS)
        for _ in range(STEPS):
            middle = (low + high) / 2
            found = self._cut(2.0**middle)
            if found.bytes > limit:
                low = middle
            else:
                high = middle
                best = min(best, found, key=self._price)
        best = self._filled(best, limit)
        if len(self.values) <= FEW_VALUES:
            exact = self._exact(limit)
            best = best if exact is None else min(exact, best, key=self._price)
        return best

    @cached_property
    def _work(self) -> dict[fx.Node, float]:
        return {n: work_of(n) if n in self.free else 0.0 for n in self.values}

    def _price(self, choice: Choice) -> float:
        return choice.work + sum(self.prices[n] for n in choice.kept)

    def choice(self, kept: Sequence[fx.Node]) -> Choice:
        """What keeping these comes to: what is kept and not needed is left out."""
        known = {*self.values}
        given, needed, waiting = {*kept}, set[fx.Node](), [*self.readers]
        while waiting:
            node = waiting.pop()
            if node not in needed and node in known:
                needed.add(node)
                if node not in given:
                    waiting += node.all_input_nodes
        found = tuple(n for n in self.values if n in needed and n in given)
        again = [n for n in needed if n not in given and n in self.free]
        operators = sum(of_target(n.target) is not Recompute.FREE for n in again)
        return Choice(found, sum(self.sizes[n] for n in found), sum(self._work[n] for n in again), operators)

    def _cut(self, price: float) -> Choice:
        """The best choice where each kept byte costs so much more than its traffic."""
        position = {n: i for i, n in enumerate(self.values)}
        source = 2 * len(position)
        costs = {n: self.prices[n] + price * self.sizes[n] for n in position}
        unit = max(1.0, *costs.values(), *self._work.values()) / LARGEST
        edges: list[Edge] = []
        for n, i in position.items():
            capacity = INFINITE if n in self.unkept else 0 if is_constant(n) else max(1, round(costs[n] / unit))
            edges.append((2 * i, 2 * i + 1, capacity))
            if n in self.free:
                edges += [(2 * position[a] + 1, 2 * i, INFINITE) for a in n.all_input_nodes if a in position]
                if work := round(self._work[n] / unit):
                    edges.append((source, 2 * i, work))
            else:
                edges.append((source, 2 * i, INFINITE))
            if n in self.readers:
                edges.append((2 * i + 1, source + 1, INFINITE))
        reached = known_side(source, edges, self.answers)
        return self.choice(
            [n for n, i in position.items() if 2 * i in reached and 2 * i + 1 not in reached and not is_constant(n)]
        )

    def _filled(self, choice: Choice, limit: float) -> Choice:
        """With what is worth most per byte kept as well, as far as there is room."""
        again = [n for n in self.values if self._work[n] > 0 and n not in choice.kept and n not in self.unkept and self.sizes[n]]
        for n in sorted(again, key=lambda n: -self._work[n] / self.sizes[n]):
            if choice.bytes + self.sizes[n] <= limit:
                more = self.choice([*choice.kept, n])
                choice = min(choice, more, key=self._price) if more.bytes <= limit else choice
        return choice

    def _exact(self, limit: float) -> Choice | None:
        """The best choice of all, by scipy's integer programmes; None where the time was too short for any."""
        import numpy
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_matrix

        count = len(self.values)
        position = {n: i for i, n in enumerate(self.values)}  # column i: it is kept; count + i: it is computed again
        unit = max(1.0, *self.prices.values(), *self._work.values())
        size = max(1, *self.sizes.values())
        rows = [({i: self.sizes[n] / size for n, i in position.items()}, -numpy.inf, limit / size)]
        for n, i in position.items():
            if n in self.readers:
                rows.append(({i: 1.0, count + i: 1.0}, 1.0, numpy.inf))
            for a in {*n.all_input_nodes} & position.keys() if n in self.free else ():
                rows.append(({position[a]: 1.0, count + position[a]: 1.0, count + i: -1.0}, 0.0, numpy.inf))
        entries = [(place, column, value) for place, (row, _, _) in enumerate(rows) for column, value in row.items()]
        places, columns, values = (numpy.array(part) for part in zip(*entries, strict=True))
        matrix = csr_matrix((values, (places, columns)), shape=(len(rows), 2 * count))
        upper = [0.0 if n in self.unkept else 1.0 for n in self.values] + [1.0 if n in self.free else 0.0 for n in self.values]
        price = [self.prices[n] / unit for n in self.values] + [self._work[n] / unit + 1e-9 for n in self.values]
        limits = LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])
        found = milp(
            price, constraints=limits, bounds=Bounds(0, upper), integrality=numpy.ones(2 * count), options={"time_limit": SECONDS}
        )
        if found.x is None:
            return None
        choice = self.choice([n for n, i in position.items() if found.x[i] > 0.5 and not is_constant(n)])
        return choice if choice.bytes <= limit else None
