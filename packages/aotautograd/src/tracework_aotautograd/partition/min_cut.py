"""The cheapest set of values to keep for the backward, by a minimum cut.

Each node that needs no tangent is split in two, joined by an edge whose capacity is the cost of keeping the value: bytes written by the
forward and read by the backward. What may not be computed again hangs on the source; what tangent-dependent nodes read hangs on the sink. The
idea is that of J. Feng and D. Huang, "Optimal gradient checkpoint search for arbitrary computation graphs", and of XLA's and functorch's
rematerialisation by min-cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from ..contracts import JointProgram
from ..flow import INFINITE, Edge, known_side
from ..options import Answers, AotOptions
from .budget import Choice, Problem
from .cost import kept_bytes
from .default import default, is_constant
from .recompute import Rules, is_random
from .split import JointParts, frontier, kept_inputs, lent_results, shown_input, through_views, with_bases

MAX_UNIT = 2**20


def min_cut(joint: JointProgram, parts: JointParts, options: AotOptions) -> list[fx.Node]:
    """Values to save. Inputs that may be kept as they are cost little: they are alive already."""
    if options.memory_budget < 1.0:
        (choice,) = chosen(joint, parts, options, [options.memory_budget])
        return [*choice.kept]
    readers = frontier(parts)
    return _solve(joint, parts, options, readers, _rules(joint, parts, options))


def _rules(joint: JointProgram, parts: JointParts, options: AotOptions) -> Rules:
    return Rules.of(joint.graph.graph.nodes, _costly(parts, options), lent_results(joint, parts))


def chosen(joint: JointProgram, parts: JointParts, options: AotOptions, budgets: Sequence[float]) -> list[Choice]:
    """The values to save under each of these budgets, with what they come to."""
    problem, whole = _whole(joint, parts, options)
    return [whole if budget >= 1.0 else problem.solve(budget * whole.bytes) for budget in budgets]


def beside_all(joint: JointProgram, parts: JointParts, options: AotOptions, saved: Sequence[fx.Node]) -> tuple[Choice, Choice]:
    """What a partitioner saves, after what is saved without a budget, with what they come to."""
    problem, whole = _whole(joint, parts, options)
    return whole, problem.choice(saved)


def _whole(joint: JointProgram, parts: JointParts, options: AotOptions) -> tuple[Problem, Choice]:
    readers, rules = frontier(parts), _rules(joint, parts, options)
    problem = _problem(joint, parts, options, readers, rules)
    return problem, problem.choice(_solve(joint, parts, options, readers, rules))


def _problem(joint: JointProgram, parts: JointParts, options: AotOptions, readers: list[fx.Node], rules: Rules) -> Problem:
    """What to keep where all but random numbers may be computed again."""
    allowed = replace(
        rules, allowed=frozenset(n for n in joint.graph.graph.nodes if n.op == "call_function" and not is_random(n))
    )
    values = _ancestors(readers, parts, allowed)
    shown = with_bases(n for n in parts.forward_outputs if isinstance(n, fx.Node))
    inputs = kept_inputs(joint, parts)
    prices = Prices(rules, inputs, shown)
    unkept = frozenset(n for n in values if n in rules.forced or isinstance(n.meta.get("val"), (tuple, list)))
    costs = {n: 0.0 if n in unkept else float(prices.capacity(n, 1)) for n in values}
    sizes = {n: 0 if n in inputs or is_constant(n) else kept_bytes(n) for n in values}
    free = frozenset(n for n in values if allowed.may(n))
    return Problem(values, frozenset(readers), free, unkept, costs, sizes, options.answers)


def _solve(joint: JointProgram, parts: JointParts, options: AotOptions, readers: list[fx.Node], rules: Rules) -> list[fx.Node]:
    if not any(rules.may(n) for n in readers):
        return default(joint, parts, options)
    shown = with_bases(n for n in parts.forward_outputs if isinstance(n, fx.Node))
    prices = Prices(rules, kept_inputs(joint, parts), shown)
    return _cut(_ancestors(readers, parts, rules), set(readers), prices, options.answers)


def _costly(parts: JointParts, options: AotOptions) -> bool:
    if options.recompute_costly != "auto":
        return options.recompute_costly == "always"
    devices = {n.meta["val"].device.type for n in parts.inputs if hasattr(n.meta["val"], "device")}
    return "cuda" in devices


def _ancestors(readers: list[fx.Node], parts: JointParts, rules: Rules) -> list[fx.Node]:
    """Readers and what they could be recomputed from, in graph order."""
    found: dict[fx.Node, None] = {}
    waiting = list(readers)
    while waiting:
        node = waiting.pop()
        if node in found or parts.is_size(node):
            continue
        found[node] = None
        if rules.may(node):
            waiting.extend(node.all_input_nodes)
    return sorted(found)


@dataclass(frozen=True)
class Prices:
    """What keeping each value costs. kept_as_they_are: inputs of which no copy is kept; shown: what the caller gets, or views of it."""

    rules: Rules
    kept_as_they_are: frozenset[fx.Node]
    shown: frozenset[fx.Node]

    def capacity(self, node: fx.Node, unit: int) -> int:
        """Of the edge of a value, in units of so many bytes."""
        if node in self.rules.forced or isinstance(node.meta.get("val"), (tuple, list)):
            return INFINITE  # of a tuple only its items can be kept
        if is_constant(node):
            return 0
        cost = 1 + kept_bytes(node) // unit
        given = shown_input(node)
        if given is not None and given not in self.kept_as_they_are:
            return 3 * cost + 3  # the forward writes a copy, where what products read is written in any case
        if given is None:
            return 2 * cost + 1 + self._is_copy(node)
        return 1 if node.op == "placeholder" else max(1, cost // 2)

    def _is_copy(self, node: fx.Node) -> bool:
        """Whether what the value is a copy of can be kept instead, and the copy be left out of the forward."""
        if node.target is not torch.ops.aten.clone.default:
            return False
        *views, made = through_views(node.all_input_nodes[0])
        return made.op != "placeholder" and self.shown.isdisjoint((*views, made))


def _cut(nodes: list[fx.Node], readers: set[fx.Node], prices: Prices, answers: Answers | None) -> list[fx.Node]:
    position = {n: i for i, n in enumerate(nodes)}
    count = len(nodes)
    source, sink = 2 * count, 2 * count + 1
    unit = max(1, max(kept_bytes(n) for n in nodes) // MAX_UNIT)
    edges: list[Edge] = []
    for node, i in position.items():
        edges.append((2 * i, 2 * i + 1, prices.capacity(node, unit)))
        if node.op == "placeholder" or not prices.rules.may(node):
            edges.append((source, 2 * i, INFINITE))
        else:
            edges += [(2 * position[a] + 1, 2 * i, INFINITE) for a in node.all_input_nodes if a in position]
        if node in readers:
            edges.append((2 * i + 1, sink, INFINITE))
    reached = known_side(source, edges, answers)  # a residual stream is kept as its sums, with nothing to compute again
    return [n for n, i in position.items() if 2 * i in reached and 2 * i + 1 not in reached and not is_constant(n)]
