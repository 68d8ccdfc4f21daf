"""SIMPLIFY: prim -> a row that looks at one node and gives an earlier node of the same value, or None.

Rows hold for every input, NaN, infinities and signed zeros included (so x + 0.0 is not x, but x * 1 is).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ..graph import PrimGraph
from ..op import Op
from ..spec import TensorSpec
from .edits import can_replace, is_prim, replace_nodes

Row = Callable[[torch.fx.Node], Any]


def simplify(graph: PrimGraph) -> PrimGraph:
    """With all rows applied once, in order of the nodes."""
    return replace_nodes(graph, _apply)


def _apply(node: torch.fx.Node) -> torch.fx.Node | None:
    row = SIMPLIFY.get(node.target.name) if isinstance(node.target, Op) else None
    other = row(node) if row is not None else None
    if not isinstance(other, torch.fx.Node):
        return None
    spec, old = node.meta["spec"], other.meta["spec"]
    if not isinstance(old, TensorSpec) or (spec.dtype, spec.device, spec.sizes) != (old.dtype, old.device, old.sizes):
        return None
    return other if can_replace(node, other) else None


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == number


def _by_one(node: torch.fx.Node) -> Any:
    return node.args[0] if _is_number(node.args[1], 1) else None


def _integer_plus_zero(node: torch.fx.Node) -> Any:
    dtype = node.meta["spec"].dtype
    return node.args[0] if not (dtype.is_floating_point or dtype.is_complex) and _is_number(node.args[1], 0) else None


def _minus_zero(node: torch.fx.Node) -> Any:
    return node.args[0] if _is_number(node.args[1], 0) and str(node.args[1]) != "-0.0" else None


def _twice(name: str) -> Row:
    return lambda node: node.args[0].args[0] if is_prim(node.args[0], name) else None


def _permute_back(node: torch.fx.Node) -> Any:
    inner = node.args[0]
    if not is_prim(inner, "permute"):
        return None
    order = tuple(inner.args[1][d] for d in node.args[1])
    return inner.args[0] if order == tuple(range(len(order))) else None


def _flip_back(node: torch.fx.Node) -> Any:
    inner = node.args[0]
    return inner.args[0] if is_prim(inner, "flip") and tuple(inner.args[1]) == tuple(node.args[1]) else None


def _widen_narrow(node: torch.fx.Node) -> Any:
    """bf16 -> f32 -> bf16 is the identity; f32 -> bf16 -> f32 is not."""
    inner = node.args[0]
    if not is_prim(inner, "convert"):
        return None
    widening = (inner.args[0].meta["spec"].dtype, inner.meta["spec"].dtype)
    return inner.args[0] if widening in EXACT_WIDENING else None


EXACT_WIDENING = frozenset(
    [(narrow, wide) for narrow in (torch.float16, torch.bfloat16) for wide in (torch.float32, torch.float64)]
    + [(torch.float32, torch.float64), (torch.int32, torch.int64), (torch.int32, torch.float64), (torch.bool, torch.float32)]
    + [(narrow, torch.int64) for narrow in (torch.bool, torch.int8, torch.uint8, torch.int16)]
)

SIMPLIFY: dict[str, Row] = {
    "mul": _by_one,
    "div": _by_one,
    "pow": _by_one,
    "add": _integer_plus_zero,
    "sub": _minus_zero,
    "neg": _twice("neg"),
    "logical_not": _twice("logical_not"),
    "bitwise_not": _twice("bitwise_not"),
    "permute": _permute_back,
    "flip": _flip_back,
    "reshape": _twice("reshape"),
    "convert": _widen_narrow,
}
