"""Two labels for each variable, at the least cost: exact where no pair of variables likes to differ, by a minimum cut."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

from ..flow import INFINITE, Edge, known_side
from ..options import Answers

__all__ = ["NEVER", "Labelling"]

NEVER = math.inf
"""The cost of what may not be."""
_LARGEST = 2**28
"""What all costs add up to, as capacities."""

Variable = Hashable


class Labelling:
    """Costs of labels: each variable is False or True."""

    def __init__(self) -> None:
        self.alone: dict[Variable, list[float]] = {}
        """Variable -> its cost as False, and as True."""
        self.pairs: dict[tuple[Variable, Variable], float] = {}
        """(a, b) -> what a = False and b = True costs."""

    def add(self, variable: Variable, false: float = 0.0, true: float = 0.0) -> None:
        """The variable, and costs of its own, which may be negative but not both infinite."""
        costs = self.alone.setdefault(variable, [0.0, 0.0])
        costs[0] += false
        costs[1] += true

    def apart(self, false: Variable, true: Variable, cost: float) -> None:
        """What it costs that the first is False and the second True."""
        if false == true:
            return
        self.add(false)
        self.add(true)
        self.pairs[false, true] = self.pairs.get((false, true), 0.0) + cost

    def cost(self, labels: Mapping[Variable, bool]) -> float:
        """Of one choice."""
        own = sum(costs[labels[v]] for v, costs in self.alone.items())
        return own + sum(cost for (a, b), cost in self.pairs.items() if labels[b] and not labels[a])

    def solve(self, answers: Answers | None = None) -> dict[Variable, bool]:
        """The cheapest choice, and of several cheapest ones that with the fewest True."""
        position = {v: i for i, v in enumerate(self.alone)}
        source, sink = len(position), len(position) + 1
        wanted: dict[tuple[int, int], float] = {(position[a], position[b]): cost for (a, b), cost in self.pairs.items()}
        for variable, (false, true) in self.alone.items():
            less = min(false, true)
            wanted[position[variable], sink] = false - less
            wanted[source, position[variable]] = true - less
        total = sum(cost for cost in wanted.values() if cost < NEVER)
        scale = 2.0 ** math.floor(math.log2(_LARGEST / max(total, 1.0)))  # sums of what is scaled so are exact: ties stay ties
        edges: list[Edge] = [
            (a, b, INFINITE if cost == NEVER else round(cost * scale)) for (a, b), cost in wanted.items() if cost > 0
        ]
        false_side = known_side(source, edges, answers) if edges else set(range(source))
        return {v: i not in false_side for v, i in position.items()}
