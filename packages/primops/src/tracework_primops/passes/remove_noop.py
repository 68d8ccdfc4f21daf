"""Remove calls that give back their operand: conversions to the same dtype, expands and reshapes to the same sizes, copies nobody sees."""

from __future__ import annotations

from collections.abc import Callable

import torch.fx

from ..graph import PrimGraph
from ..op import Op
from ..spec import TensorSpec
from .edits import can_replace, replace_nodes


def remove_noop(graph: PrimGraph) -> PrimGraph:
    """Without calls that change nothing."""
    return replace_nodes(graph, _operand_if_same)


def _operand_if_same(node: torch.fx.Node) -> torch.fx.Node | None:
    if not isinstance(node.target, Op) or node.target.name not in NOOPS:
        return None
    x = node.args[0]
    spec, old = node.meta["spec"], x.meta["spec"]
    if not isinstance(old, TensorSpec) or (spec.dtype, spec.device, spec.sizes) != (old.dtype, old.device, old.sizes):
        return None
    return x if NOOPS[node.target.name](node) and can_replace(node, x) else None


def _always(node: torch.fx.Node) -> bool:
    return True


# prim -> whether it does nothing, given that dtype, device and sizes are those of its operand
NOOPS: dict[str, Callable[[torch.fx.Node], bool]] = {
    "convert": _always,
    "bitcast": _always,
    "expand": _always,
    "reshape": _always,
    "squeeze": _always,
    "permute": lambda node: tuple(node.args[1]) == tuple(range(len(node.args[1]))),
    "slice": lambda node: node.args[2] == 0 and node.args[4] == 1,
    "clone": _always,
    "contiguous": _always,
    "device_put": _always,
}
