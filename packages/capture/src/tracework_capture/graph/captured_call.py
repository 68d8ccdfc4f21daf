"""What nodes call that run graphs of their own (graph/regions.py)."""

from __future__ import annotations

from torch import fx


class CapturedCall:
    """Target of a node that calls a captured graph, which `runs`."""

    def __init__(self, name: str, runs: fx.GraphModule) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "tracework_capture.graph.regions"
        self.runs = runs

    def graphs(self) -> list[fx.Graph]:
        """All that it runs."""
        return [self.runs.graph]
