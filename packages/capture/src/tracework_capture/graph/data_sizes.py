"""Sizes and numbers that depend on data, under the option `unbacked`: which nodes they come from, and what torch._check says of them.

A node whose operator read data carries meta["data_dependent"]; later stages call it as it is and compile what is between such nodes.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .._torch import enter_autocast, set_grad_mode
from ..guards.kinds import COMPARE_FUNCTIONS

__all__ = ["bind_sizes", "holds", "relation_node", "state", "switches_modes"]


def bind_sizes(builder: Any, node: fx.Node, example: Any) -> None:
    """Nodes for the symbols that first appear in a node's result."""
    if isinstance(example, torch.SymInt):
        if _is_new(builder, example):
            builder.know_size(builder.symbols.from_symint(example), node)
    elif isinstance(example, torch.Tensor):
        for dim, size in enumerate(example.shape):
            if _is_new(builder, size):
                made = builder.size_operation(torch.ops.aten.sym_size.int, (node, dim), size)
                builder.know_size(builder.symbols.from_symint(size), made)
    elif isinstance(example, (tuple, list)):
        for index, item in enumerate(example):
            if isinstance(item, torch.Tensor) and any(_is_new(builder, size) for size in item.shape):
                bind_sizes(builder, builder.size_operation(operator.getitem, (node, index), item), item)


def _is_new(builder: Any, size: Any) -> bool:
    """Whether a size is a symbol alone, which depends on data, and no node gives it yet."""
    if not isinstance(size, torch.SymInt):
        return False
    symbol = builder.symbols.from_symint(size)
    return symbol in builder.symbols.origins and not builder.symbols.has_hint(symbol) and not builder.knows_size(symbol)


def holds(difference: int, relation: str, error: str, text: str) -> None:
    """Raises when `difference relation 0` is false."""
    if not COMPARE_FUNCTIONS[relation](difference, 0):
        raise RAISED[error](text)


RAISED = {each.__name__: each for each in (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)}


def state(frame: Any, condition: Any, error: type[BaseException], text: str) -> None:
    """The program says that a condition on sizes holds: taken for granted from here on, and looked at when the graph runs."""
    builder = frame.graph
    builder.symbols.assume(condition, frame.user_location())
    node = builder.graph.call_function(holds, (builder.size_node(condition.expr), condition.op, error.__name__, text))
    node.meta.update(example_value=None, val=None, data_dependent=True)
    node.meta["stack"] = node.meta["stack_trace"] = frame.user_location()
    builder.calls += 1


MODE_SWITCHES = (set_grad_mode, enter_autocast)


def switches_modes(graph: fx.Graph) -> bool:
    """Whether grad mode or autocast change inside, which later stages do not keep when they cut the graph at its reads of data."""
    return any(node.target in MODE_SWITCHES for node in graph.nodes)


def relation_node(builder: Any, condition: Any) -> fx.Node:
    """The node of a condition's truth."""
    example = builder.symbols.to_symbool(condition)
    node: fx.Node = builder.size_operation(COMPARE_FUNCTIONS[condition.op], (builder.size_node(condition.expr), 0), example)
    return node
