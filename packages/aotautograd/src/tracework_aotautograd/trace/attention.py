"""flex_attention of a captured graph as one operator: what its functions do to scores becomes the operator's bodies, before the trace.

What the bodies read besides scores and indices is computed outside of them, and they are functions of that. Where they need gradients of it,
or cannot be written as bodies, the graph stays: it computes all scores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx
from tracework_primops import PrimError, attended, attention_of_bodies, copy_node, trace_bodies

from .. import _torch

__all__ = ["with_attention"]

log = logging.getLogger("tracework.aotautograd.attention")
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})
MOST_WIDTH = 256


def with_attention(gm: fx.GraphModule, devices: Collection[str]) -> fx.GraphModule:
    """The graph with attention as one operator on devices of these types; the same object where there is none."""
    calls = {node: call for node in gm.graph.nodes if node.target is attended and (call := _call(gm, node, devices))}
    if not calls:
        return gm
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node in calls:
            moved = {}
            for number, device in _numbers_elsewhere(node, calls[node]):
                moved[number] = graph.call_method("to", (made[number], device))
                moved[number].meta["stack"] = node.meta.get("stack")
            args = fx.map_arg(calls[node], (made | moved).__getitem__)
            made[node] = graph.call_function(attention_of_bodies, args)
            made[node].meta.update(node.meta)
        else:
            made[node] = copy_node(graph, node, made.__getitem__)
    unread = {made[n] for n in _ancestors(list(calls)) if n.op in ("call_function", "call_method") and n not in calls}
    graph.eliminate_dead_code(is_impure_node=lambda node: node not in unread)
    result = _torch.graph_module(graph, gm)
    result.meta.update(gm.meta)
    return result


def _numbers_elsewhere(node: fx.Node, call: tuple[Any, ...]) -> list[tuple[fx.Node, torch.device]]:
    """Captured tensors of one number on the CPU, which the operator reads on its own device."""
    device = node.args[0].meta["example_value"].device  # type: ignore[union-attr]
    return [(n, device) for n in call[3] if n.meta["example_value"].device != device]


def _call(gm: fx.GraphModule, node: fx.Node, devices: Collection[str]) -> tuple[Any, ...] | None:
    """The arguments of the operator that computes what a call of `attended` does."""
    query, key, value, scores, indices, changed, mask, scale, blocks, extents = node.args
    q, k, v = (n.meta["example_value"] for n in (query, key, value))  # type: ignore[union-attr]
    if (
        q.device.type not in devices
        or not q.dtype == k.dtype == v.dtype
        or q.dtype not in DTYPES
        or type(scale) not in (int, float)
    ):
        return None
    table = gm.meta.get("symbols")
    fixed = (q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    if any(type(n) is not int and not table.has_hint(table.from_symint(n)) for n in fixed):
        return None
    numbers = [n if type(n) is int else table.hint(table.from_symint(n)) for n in fixed]
    if max(numbers[2:]) > MOST_WIDTH or 0 in numbers or k.shape[1] != v.shape[1]:
        return None
    if any(type(n) is int and n == 0 for x in (q, k) for n in x.shape):
        return None
    between = _Between([scores, *indices], [changed, mask])  # type: ignore[misc]
    captured = [n.meta["example_value"] for n in between.captured]
    given = [x for x in captured if isinstance(x, torch.Tensor)]
    if any(x.device != q.device and (x.ndim or x.device.type != "cpu") for x in given):
        return None
    if changed.meta["example_value"].requires_grad and any(x.requires_grad for x in given):  # type: ignore[union-attr]
        return None
    try:
        texts = trace_bodies(between.function(0), between.function(1), captured, torch.float32, q.device, table)
    except (PrimError, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        log.debug("%s: attention computes all scores: %s", node.meta.get("stack"), error)
        return None
    for size in fixed:  # heads and widths are numbers in kernels; as under torch.compile, no symbols
        int(size)
    tensors = [n for n, x in zip(between.captured, captured, strict=True) if isinstance(x, torch.Tensor)]
    sizes = [n for n, x in zip(between.captured, captured, strict=True) if not isinstance(x, torch.Tensor)]
    return query, key, value, tensors, list(blocks), sizes, *texts, float(scale), list(extents)  # type: ignore[arg-type]


def _ancestors(of: Sequence[fx.Node]) -> list[fx.Node]:
    """These nodes and all behind them, in order."""
    found: set[fx.Node] = set()
    waiting = list(of)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return sorted(found)


class _Between:
    """The nodes by which results are computed from scores and indices, and what else these read."""

    def __init__(self, given: Sequence[fx.Node], results: Sequence[fx.Node]) -> None:
        self.given, self.results = given, results
        depends = set(given)
        nodes = _ancestors(results)
        for node in nodes:
            if any(n in depends for n in node.all_input_nodes):
                depends.add(node)
        inside = set(given)
        waiting = [n for n in results if n in depends]
        while waiting:
            node = waiting.pop()
            if node not in inside:
                inside.add(node)
                waiting += [n for n in node.all_input_nodes if n in depends]
        self.nodes = [n for n in nodes if n in inside and n not in set(given)]
        read = [n for node in self.nodes for n in node.all_input_nodes] + list(results)
        self.captured = list(dict.fromkeys(n for n in read if n not in inside))

    def function(self, result: int) -> Callable[..., Any]:
        """One result as a function of what is given and captured."""

        def run(*operands: Any) -> Any:
            values = dict(zip([*self.given, *self.captured], operands, strict=True))
            for node in self.nodes:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                if node.op == "call_method":
                    values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)  # type: ignore[arg-type]
                else:
                    values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            return values[self.results[result]]

        return run
