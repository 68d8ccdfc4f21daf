"""Compute what is known: a view or elementwise prim whose only operand is a `full` becomes a `full` of the result.

Other constants stay computations: a backend makes them where they are used, which costs less than loading them.
"""

from __future__ import annotations

import torch
import torch.fx

from ..broadcasting import is_dense
from ..graph import PrimGraph
from ..op import OPS, Kind, Op
from ..spec import TensorSpec
from ..symbols import Expr
from .edits import is_prim

VIEWS = frozenset(("expand", "reshape", "permute", "squeeze", "unsqueeze"))
DIVISIONS = frozenset(("floor_divide", "trunc_divide", "remainder", "fmod"))
EXACT = frozenset((torch.float64, torch.float32, torch.int64, torch.int32, torch.bool))


def constant_fold(graph: PrimGraph) -> PrimGraph:
    """With known values written as `full`."""
    if not any(map(_is_known, graph.calls)):
        return graph
    edited = graph.for_editing()
    for node in edited.calls:
        if _is_known(node):
            _fold(node)
    return edited


def _is_known(node: torch.fx.Node) -> bool:
    target, spec, operands = node.target, node.meta["spec"], node.all_input_nodes
    if not isinstance(target, Op) or target.name not in VIEWS and target.kind is not Kind.POINTWISE:
        return False
    if not isinstance(spec, TensorSpec) or spec.dtype not in EXACT or len(operands) != 1 or not is_prim(operands[0], "full"):
        return False
    if target.name not in VIEWS and any(isinstance(arg, Expr) for arg in node.args[1:]):
        return False
    if target.name in DIVISIONS and 0 in node.args[1:] and not spec.dtype.is_floating_point:
        return False  # it raises where it has elements
    return node.args[0] is operands[0] and operands[0] not in node.args[1:] and type(operands[0].args[1]) in (int, float, bool)


def _fold(node: torch.fx.Node) -> None:
    source, spec = node.args[0], node.meta["spec"]
    value = source.args[1]
    if node.target.name not in VIEWS:
        scalar = torch.full((), value, dtype=source.meta["spec"].dtype)
        value = node.target(scalar, *node.args[1:]).item()
    node.target = OPS["full"]
    node.args = (spec.sizes, value, spec.dtype, spec.device)
    strides = spec.strides if is_dense(spec.sizes, spec.strides) else None  # those of a view may show one place several times
    node.meta["spec"] = TensorSpec(spec.dtype, spec.device, spec.sizes, strides)
