"""SIMPLIFY: prim -> a row that looks at one node and gives an earlier node of the same value, or None.

Rows hold for every input, NaN, infinities and signed zeros included (so x + 0.0 is not x, but x * 1 is).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.fx

from ..graph import PrimGraph
from ..op import Op
from ..spec import TensorSpec
from .edits import can_replace, is_prim, replace_nodes

Row = Callable[[torch.fx.Node], torch.fx.Node | None]


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


def _is_number(value: object, number: int) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == number


def _is_integral(node: torch.fx.Node) -> bool:
    dtype = node.meta["spec"].dtype
    return not (dtype.is_floating_point or dtype.is_complex)


def _is_negative_zero(value: object) -> bool:
    return isinstance(value, float) and str(value) == "-0.0"


def _is_complex(node: torch.fx.Node) -> bool:
    """A complex number times or over a real one has NaN where one part is infinite: nothing of this is the identity."""
    return node.meta["spec"].dtype.is_complex


def _times_one(node: torch.fx.Node) -> torch.fx.Node | None:
    a, b = node.args
    if _is_complex(node):
        return None
    return a if _is_number(b, 1) else b if _is_number(a, 1) else None


def _by_one(node: torch.fx.Node) -> torch.fx.Node | None:
    return node.args[0] if _is_number(node.args[1], 1) and not _is_complex(node) else None


def _integer_by_one(node: torch.fx.Node) -> torch.fx.Node | None:
    return _by_one(node) if _is_integral(node) else None


def _plus_zero(node: torch.fx.Node) -> torch.fx.Node | None:
    """x + 0 for integers; for floats only x + -0.0, because -0.0 + 0.0 is 0.0."""
    for x, number in (node.args, node.args[::-1]):
        if _is_number(number, 0) and (_is_integral(node) or _is_negative_zero(number) and not _is_complex(node)):
            return x
    return None


def _minus_zero(node: torch.fx.Node) -> torch.fx.Node | None:
    number = node.args[1]
    return node.args[0] if _is_number(number, 0) and not _is_negative_zero(number) and not _is_complex(node) else None


def _no_shift(node: torch.fx.Node) -> torch.fx.Node | None:
    return node.args[0] if _is_number(node.args[1], 0) else None


def _twice(name: str) -> Row:
    return lambda node: node.args[0].args[0] if is_prim(node.args[0], name) else None


def _again(name: str) -> Row:
    return lambda node: node.args[0] if is_prim(node.args[0], name) else None


def _equal_operands(first: int, second: int) -> Row:
    return lambda node: node.args[first] if node.args[first] is node.args[second] else None


def _permute_back(node: torch.fx.Node) -> torch.fx.Node | None:
    """Through any number of permutations that together are none."""
    order = tuple(node.args[1])
    source = node.args[0]
    while is_prim(source, "permute"):
        order = tuple(source.args[1][d] for d in order)
        source = source.args[0]
        if order == tuple(range(len(order))):
            return source
    return None


def _same_elements_in_order(node: torch.fx.Node) -> torch.fx.Node | None:
    """Back through views that keep the order of elements to one of the same sizes."""
    source = node.args[0]
    while is_prim(source, *KEEP_ORDER):
        source = source.args[0]
        if source.meta["spec"].sizes == node.meta["spec"].sizes:
            return source
    return None


def _flip_back(node: torch.fx.Node) -> torch.fx.Node | None:
    inner = node.args[0]
    return inner.args[0] if is_prim(inner, "flip") and tuple(inner.args[1]) == tuple(node.args[1]) else None


def _widen_narrow(node: torch.fx.Node) -> torch.fx.Node | None:
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

KEEP_ORDER = ("reshape", "squeeze", "unsqueeze")

SIMPLIFY: dict[str, Row] = {
    "mul": _times_one,
    "div": _by_one,
    "pow": _by_one,
    "floor_divide": _integer_by_one,
    "trunc_divide": _integer_by_one,
    "add": _plus_zero,
    "sub": _minus_zero,
    "shift_left": _no_shift,
    "shift_right": _no_shift,
    "neg": _twice("neg"),
    "conj": _twice("conj"),
    "logical_not": _twice("logical_not"),
    "bitwise_not": _twice("bitwise_not"),
    "abs": _again("abs"),
    "floor": _again("floor"),
    "ceil": _again("ceil"),
    "trunc": _again("trunc"),
    "sign": _again("sign"),
    "maximum": _equal_operands(0, 1),
    "minimum": _equal_operands(0, 1),
    "bitwise_and": _equal_operands(0, 1),
    "bitwise_or": _equal_operands(0, 1),
    "where": _equal_operands(1, 2),
    "permute": _permute_back,
    "flip": _flip_back,
    "convert": _widen_narrow,
    **dict.fromkeys(KEEP_ORDER, _same_elements_in_order),
}
