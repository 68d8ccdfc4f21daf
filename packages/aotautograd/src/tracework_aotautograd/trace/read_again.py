"""The arguments of checkpoints, which eager keeps for the backward to compute with again."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


class ReadAgain:
    """While a captured graph runs: for each checkpoint the tensors that stand for those of meta["recompute_reads"], with their versions."""

    def __init__(self) -> None:
        self._made: dict[int, torch.Tensor] = {}  # by the captured fake
        self._found: dict[int, tuple[tuple[Any, int], ...]] = {}  # by the tuple of those, which the nodes of a checkpoint share

    def made(self, node: fx.Node, value: Any) -> None:
        """What a captured node gave."""
        if isinstance(value, torch.Tensor):
            self._made[id(node.meta.get("example_value"))] = value

    def of(self, node: fx.Node) -> tuple[tuple[Any, int], ...]:
        """Of the checkpoint that a node is in, before it runs: those that were made in this graph."""
        reads = node.meta.get("recompute_reads", ())
        if reads and id(reads) not in self._found:
            tensors = [self._made[id(read)] for read in reads if id(read) in self._made]
            self._found[id(reads)] = tuple((t, t._version) for t in tensors if not t.is_inference())
        return self._found.get(id(reads), ())
