"""The values of a graph's tensors, by their fakes: what an operation gives back is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import fx

    from .kinds import AbstractTensor
    from .value import Frame


def known_values(frame: Frame) -> dict[int, AbstractTensor]:
    """id of a fake -> its value, for this graph."""
    values: dict[int, AbstractTensor] = frame.graph.tensor_values
    return values


def remember(frame: Frame, value: AbstractTensor) -> None:
    """Finds the value again when an operation returns one of its arguments."""
    known_values(frame)[id(value.example)] = value


def forget_nodes(frame: Frame, nodes: Collection[fx.Node]) -> None:
    """These nodes became part of an inner graph: their values cannot be used outside of it."""
    for node in nodes:
        node.meta["moved"] = True
    for value in known_values(frame).values():
        if value.node in nodes:
            value.node = None
