"""Masks that say the same: `x[y > 0]` and `z[y > 0]` compute the mask twice, and have sizes that are equal because the masks are.

The second one is taken for the first, whose number of True ones the graph has a symbol for.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx

from ..protocol.kinds import AbstractTensor

if TYPE_CHECKING:
    from ..protocol.value import Frame

NAMES = "lt le gt ge eq ne logical_not logical_and logical_or logical_xor isnan isinf isfinite".split()
COMPARISONS = {
    **{getattr(torch, name): name for name in NAMES},
    **{getattr(operator, name): name for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{getattr(operator, name): name for name in ("and_", "or_", "xor", "invert")},
    **{name: name for name in NAMES},
}
"""Function, or method, of tensors whose results follow from the elements of its arguments -> its name."""
CONSTANTS = (bool, int, float, type(None))


def first_such(frame: Frame, mask: AbstractTensor) -> AbstractTensor:
    """The mask that the program used first among those that say the same; the mask itself where it is the first."""
    if frame.modes.transforms or frame.recording.selecting or mask.example.dtype is not torch.bool or mask.example.requires_grad:
        return mask
    found = meaning(mask.node)
    if found is None or found is mask.node:
        return mask
    first = frame.queries.masks.setdefault(found, mask)
    return first if first.node is not None and is_unwritten(first.node) else mask


def meaning(node: fx.Node) -> Any:
    """What the mask is computed from, equal for equal ones; a node that is no question about tensors stands for itself. None where one of
    the tensors was written to."""
    if not is_unwritten(node):
        return None
    name = COMPARISONS.get(node.target) if node.op in ("call_function", "call_method") and not node.kwargs else None
    if name is None:
        return node
    parts = [meaning(arg) if isinstance(arg, fx.Node) else (type(arg), repr(arg)) for arg in node.args]
    known = all(isinstance(arg, (fx.Node, *CONSTANTS)) for arg in node.args)
    return (name, *parts) if known and None not in parts else None


def is_unwritten(node: fx.Node) -> bool:
    """Whether the node is a tensor that nothing was written to since the graph began."""
    example: Any = node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and cast(Any, example).storage.version == 0 and not node.meta.get("moved")
