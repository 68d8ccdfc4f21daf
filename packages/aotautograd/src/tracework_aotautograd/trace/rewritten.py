"""A functional graph that the caller's own code has rewritten: what is new gets its values and phase, and what depends on it new values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .tracer import BACKWARD, FORWARD

__all__ = ["rewrite"]


def rewrite(gm: fx.GraphModule, change: Callable[[fx.Graph], object], fake_mode: Any = None) -> None:
    """Calls `change(gm.graph)`, which changes the graph in place, and completes it. fake_mode: of the values in meta["val"].

    Raises what `change` raises, RuntimeError for a graph that is not well formed, and what an operator raises for the shapes that it gets.
    """
    before = {node: _call(node) for node in gm.graph.nodes}
    change(gm.graph)
    gm.graph.lint()
    changed: set[fx.Node] = set()
    with torch.no_grad(), fake_mode or contextlib.nullcontext():
        for node in gm.graph.nodes:
            if node.op != "call_function":
                continue
            if node not in before or _call(node) != before[node] or not changed.isdisjoint(node.all_input_nodes):
                args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                node.meta["val"] = node.target(*args, **kwargs)
                changed.add(node)
            if "phase" not in node.meta:
                node.meta["phase"] = _phase(node)
    gm.recompile()


def _call(node: fx.Node) -> tuple[Any, ...]:
    return node.target, node.args, node.kwargs


def _phase(node: fx.Node) -> str:
    around = node.all_input_nodes or [user for user in node.users if "phase" in user.meta]
    return BACKWARD if any(other.meta.get("phase") == BACKWARD for other in around) else FORWARD
