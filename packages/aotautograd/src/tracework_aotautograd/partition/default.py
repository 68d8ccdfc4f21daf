"""Save everything the backward reads: no recomputation."""

from __future__ import annotations

import operator

import torch
from torch import fx

from ..contracts import JointProgram
from ..options import AotOptions
from .recompute import Recompute, of_target
from .split import JointParts, frontier


def is_constant(node: fx.Node) -> bool:
    """Made from numbers and sizes alone, and so made again rather than kept."""
    if node.op != "call_function" or node.target is operator.getitem or of_target(node.target) is not Recompute.FREE:
        return False
    return not any(isinstance(a.meta.get("val"), torch.Tensor) for a in node.all_input_nodes)


def default(joint: JointProgram, parts: JointParts, options: AotOptions) -> list[fx.Node]:
    """The frontier, less constants, whose nodes the backward repeats."""
    return [n for n in frontier(parts) if not is_constant(n)]
