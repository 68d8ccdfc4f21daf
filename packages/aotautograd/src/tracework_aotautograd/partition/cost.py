"""Bytes of a value."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

OF_DATA = 1024


def hint(size: Any) -> int:
    """A number for a size: what it was when the graph was captured, a guess for one that depends on data."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else OF_DATA
    return size if isinstance(size, int) else 1


def kept_bytes(node: fx.Node) -> int:
    """What keeping the node's value costs, in bytes; 0 for what is not a tensor."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return 0
    count = 1
    for size in val.shape:
        count *= hint(size)
    return count * val.element_size()
