"""GRAPH_PASSES: rewrites of a graph of prims before it is lowered, in order."""

from collections.abc import Callable

from tracework_primops import PrimGraph

from .pad_matmul import pad_matmul

GRAPH_PASSES: tuple[Callable[[PrimGraph], PrimGraph], ...] = (pad_matmul,)

__all__ = ["GRAPH_PASSES"]
