"""Cuts a PrimGraph into what engines run and single calls of eager's kernels, in the order in which they run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.fx
from tracework_primops import Expr, Op, PrimGraph, SizeSpec, Symbol, Tag, TensorSpec, copy_node, prims

WriteIn = Callable[[torch.fx.Node], str | None]


@dataclass(frozen=True, eq=False)
class Part:
    """A graph for an engine. `sources`: the node, or the symbol, of the whole graph for each of its inputs; `results`: nodes of it."""

    prims: PrimGraph
    sources: tuple[torch.fx.Node | Symbol, ...]
    results: tuple[torch.fx.Node, ...]


@dataclass(frozen=True)
class Cut:
    """Parts and calls in order, and why each call is none of an engine's."""

    steps: tuple[Part | torch.fx.Node, ...]
    reasons: dict[torch.fx.Node, str]


def cut(graph: PrimGraph, why_not: WriteIn) -> Cut:
    """A call that cannot be written begins a new level for what reads it; each level is one part, and its calls run after it.

    Random numbers are drawn, and operators called that may have effects, in the graph's order; inputs are written last.
    """
    reasons: dict[torch.fx.Node, str] = {}
    levels: dict[torch.fx.Node, int] = dict.fromkeys(graph.placeholders, 0)
    latest = 0
    for node in graph.calls:
        reason = None if node.target is operator.getitem else why_not(node)
        apart = node.args[0] in reasons if node.target is operator.getitem else reason is not None
        level = max([levels[n] + (not apart and n in reasons) for n in node.all_input_nodes], default=0)
        if apart:
            reasons[node] = reason or ""
            if node.target is not operator.getitem and (not isinstance(node.target, Op) or Tag.RANDOM in node.target.tags):
                level = latest = max(level, latest)
        levels[node] = level
    last = max(levels.values(), default=0)
    writes = [n for n in graph.calls if n.target is prims.copy_into]
    steps: list[Part | torch.fx.Node] = []
    for level in range(last + 1):
        own = [n for n in graph.calls if levels[n] == level and n not in reasons]
        if own:
            steps.append(_part(graph, own))
        steps += [n for n in graph.calls if levels[n] == level and n in reasons and n not in writes]
    return Cut((*steps, *writes), {n: r for n, r in reasons.items() if r and n not in writes})


def _part(graph: PrimGraph, own: list[torch.fx.Node]) -> Part:
    """These calls as a graph of their own: what they read from outside are inputs, and the symbols no input is the size of."""
    mine = set(own)
    outside = list(dict.fromkeys(n for node in own for n in node.all_input_nodes if n not in mine))
    returned = {n for n in graph.outputs if isinstance(n, torch.fx.Node)}
    results = [n for n in own if _is_tensor(n) and (n in returned or any(u not in mine for u in n.users if u.op != "output"))]
    fresh = torch.fx.Graph()
    done: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in outside:
        done[node] = fresh.placeholder(node.name)
        done[node].meta["spec"] = node.meta["spec"]
    shown = {s for n in outside for s in n.meta["spec"].sizes if isinstance(s, Symbol)}
    symbols = sorted(_symbols_of(own) - shown, key=str)
    for symbol in symbols:
        fresh.placeholder(f"size_{symbol}").meta["spec"] = SizeSpec(symbol)
    for node in own:
        done[node] = copy_node(fresh, node, done.__getitem__)
    fresh.output(tuple(done[n] for n in results))
    return Part(PrimGraph.from_fx(fresh, graph.role, graph.symbols), (*outside, *symbols), tuple(results))


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta["spec"], TensorSpec)


def _symbols_of(nodes: list[torch.fx.Node]) -> set[Symbol]:
    found: set[Symbol] = set()

    def visit(value: Any) -> None:
        if isinstance(value, Expr):
            found.update(value.free_symbols)
        elif isinstance(value, (tuple, list)):
            for v in value:
                visit(v)
        elif isinstance(value, dict):
            visit(list(value.values()))
        elif isinstance(value, TensorSpec):
            visit((*value.sizes, *value.strides, value.offset))
        elif hasattr(value, "op") and hasattr(value, "args") and not isinstance(value, torch.fx.Node):  # a float made from sizes
            visit(value.args)

    for node in nodes:
        visit((node.args, node.kwargs, node.meta["spec"]))
    return found
