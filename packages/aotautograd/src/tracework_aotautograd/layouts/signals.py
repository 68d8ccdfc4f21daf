"""Convolutions of signals that are to lie channels-last become convolutions of images of one row.

The library makes signals row-major before it computes with them, and images not.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from tracework_primops.broadcasting import channels_last

from ..nodes import called, function_of, operand_of
from .choice import CONVOLUTIONS, Choice

__all__ = ["signals_as_images"]

aten = torch.ops.aten


def signals_as_images(graph: fx.Graph, choices: Mapping[fx.Node, Choice]) -> dict[fx.Node, Choice]:
    """Rewrites the graph in place; the choices for what stands in it then."""
    found = dict(choices)
    for node in dict.fromkeys(choice.variable for choice in choices.values()):
        if node.target in CONVOLUTIONS and operand_of(node).meta["val"].ndim == 3:
            _rewrite(graph, node, found)
    return found


def _rewrite(graph: fx.Graph, node: fx.Node, choices: dict[fx.Node, Choice]) -> None:
    places, weight, first = CONVOLUTIONS[node.target]
    args: list[Any] = list(node.args)
    with graph.inserting_before(node):
        for place in (*places, weight):
            signal = args[place]
            args[place] = called(graph, node, aten.unsqueeze.default, signal, 2)
            if signal in choices:
                choices[args[place]] = Choice(choices[signal].variable, ())
        for setting, of_row in ((first, 1), (first + 1, 0), (first + 2, 1), (first + 4, 0)):
            args[setting] = [of_row, *args[setting]]
        made = called(graph, node, function_of(node), *args)
    # eager's, also for signals that the library would take for channels-last images
    made.meta["val"] = _of_one_row(node.meta["val"])
    choices[made] = Choice(made, ())
    for old in [node] if isinstance(node.meta["val"], torch.Tensor) else list(node.users):
        with graph.inserting_before(old if old is not node else node.next):
            new = made if old is node else called(graph, old, operator.getitem, made, old.args[1])
            if new.meta["val"].ndim == 4:
                choices[new] = Choice(made, channels_last(new.meta["val"].shape))
                new = called(graph, old, aten.squeeze.dim, new, 2)
                if old in choices:
                    choices[new] = Choice(made, choices.pop(old).last)
        old.replace_all_uses_with(new)
        if old is not node:
            graph.erase_node(old)
    graph.erase_node(node)


def _of_one_row(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.unsqueeze(2) if value.ndim == 3 else value
    return tuple(map(_of_one_row, value)) if isinstance(value, tuple) else value
